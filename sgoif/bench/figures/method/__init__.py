"""Figures about SG-OIF itself: one module for each (the contract is in `sgoif.bench.figures`)."""
