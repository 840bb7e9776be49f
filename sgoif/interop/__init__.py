"""Bridges to other libraries. None of them is needed by anything else here, and each is imported when it is first used.

`cleanlab`: label quality and Datalab issues, out-of-fold probabilities.   `frames`: pandas and Hugging Face tables.
`pytorch_ood`: any of its detectors as an OOD baseline.   Loops of Lightning and timm: `examples/`.
"""
