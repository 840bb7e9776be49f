"""Scans by features: of a file (`pipeline.py`), or of a pretrained network (`sgoif.scan.pretrained`).

`training.py` trains the head and keeps what the page and `sgoif explain` need. The method is `sgoif.features`.
"""
