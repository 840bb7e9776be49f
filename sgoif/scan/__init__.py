"""The commands `sgoif scan`, `sgoif apply` and `sgoif explain`: wrong labels in a folder of images.

Way in: `pipeline.scan`, `apply.apply` and `explain.explain`, called by `sgoif.cli`.
Reads: a folder of class folders, a CSV of path and label, or a named data set (`sources`).
Writes: one folder per scan; its files are listed in `output_folder`. Images are only read.
"""
