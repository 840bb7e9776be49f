"""Helpers without a subject of their own, used by all packages.

`files`: atomic, sealed and byte-identical files. `interrupt`: a Ctrl-C that is not lost. `paths`: the checkout.
`suggest`: nearest names for error messages. `device`: the device of a command. `eval_mode`: eval mode for a while.

Reads and writes: whatever files the caller names.
"""
