"""What a scan can read: a folder of class folders, a CSV of path and label, a file of features, or a data set by name.

Way in: `read.read_source`, which returns an `image_listing.Listing` of names, labels and a way to open each image.
Reads: the folder, the file, or torchvision's copy of the data set. Writes: `features.npy` in the scan folder,
where columns of a table are features.
"""
