"""Datasets that stay as they were unpacked: lists of image files instead of arrays.

Way in: `listing.locate` finds such a dataset on this machine, `listing.read` lists its images by one of the official
layouts (`layouts.LAYOUTS`). Reads the official lists and the first and last bytes of every image file; `prepare` writes
the lists to data/<name>/ and what was left out to problems.csv.
"""
