"""Helpers that every package may use; they know nothing of influence, training or the benchmark.

`files`: atomic, sealed and byte-identical files. `interrupt`: a Ctrl-C that is not lost. `paths`: the checkout.
`suggest`: nearest names for error messages. `device`: the device of a command.
`image_ops`, `digits`: small image operations, and scikit-learn's digits.

Reads and writes: only the files that the caller names.
"""
