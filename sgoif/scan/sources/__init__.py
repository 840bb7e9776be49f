"""What a scan can read: a folder of class folders, a CSV of path and label, or a data set by name.

Way in: `read.read_source`, which returns a `listing.Listing` of names, labels and a way to open each image.
Reads: the folder, the CSV file, or torchvision's copy of the data set. Writes: nothing.
"""
