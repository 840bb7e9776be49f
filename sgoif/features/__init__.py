"""Wrong labels in features: embeddings, measurements, any numbers that describe an example, with one class each.

The way in is `sgoif.find_label_issues(features, labels)`, in `find.py`. It trains a linear head on the features
(`head.py`) while `OnlineInfluence` watches, and asks heads that have not seen an example about its label
(`held_out.py`). Features are read in blocks (`arrays.py`), so that a mapped file of a million examples is never in
memory as a whole. Needs torch and numpy alone; writes no file.
"""
