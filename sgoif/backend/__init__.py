"""Helpers for devices and processes that the method is built on.

`cuda` runs work on a side stream, `collectives` sums over the processes of a distributed run, `linalg` holds dense
products and factorisations that never wait for the device, `eval_mode` sets a model to eval mode for a while,
`integers` takes integers from tensors, arrays and lists. Nothing here knows the method; no files are read or written.
"""
