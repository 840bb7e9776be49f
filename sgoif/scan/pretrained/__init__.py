"""Pretrained networks: where their weights are, when a scan uses them, and the features of images, kept on disk.

Way in: `choice.choose_start` says what a scan of images trains and why; `weights.py` finds, reads and checks weights;
`embedding.py` gives the features of images. Reads: weights in timm's cache, an installed package, or a file.
Writes: the cache of features, in the user's cache folder (`embedding_cache.py`).
"""
