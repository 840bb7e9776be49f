"""Readers of dataset files: official archives, archives of JPEG images, and data inside scikit-learn.

Way in: `archives.READERS[dataset.reader](dataset, files)` for verified official files, `bundled.read(name)` for data
that needs no files. Each returns {part: (images, labels)}. Archives are read member by member and never unpacked;
nothing is written.
"""
