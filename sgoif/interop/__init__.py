"""Bridges to other libraries, each of which is imported when it is first used.

`cleanlab`: label quality, Datalab issues and out-of-fold probabilities. `dataframes`: pandas and Hugging Face tables.
`pytorch_ood`: any of its detectors as an OOD baseline. Training loops of Lightning and timm are in `examples/`.

Reads and writes no files. Nothing else in this project needs these libraries.
"""
