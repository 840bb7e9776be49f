"""Per-example gradients, taken from the training step that computes them anyway.

`hooks` (last layer) and `layer_hooks` (several layers) record a forward and backward pass, `queue` collects the passes
of several steps, and both give a `FactoredBatch` of gradients in the form (input activation, output gradient).
`layers` holds the gradients of one layer, `parameter_space` the flat layout of all layers in scope, `dot_product` the
products that are computed during the backward pass. No files are read or written.
"""
