"""Figures that compare methods: one module for each (the contract is in `sgoif.bench.figures`)."""
