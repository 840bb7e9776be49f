"""Anchors: the examples whose loss the influence scores refer to.

`bank` keeps one mean gradient per anchor, from the training stream or from external data. `external` passes held-out
or trusted examples through the model at the checks. Both read batches of gradients; no files are read or written.
"""
