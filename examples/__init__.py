"""Runnable examples on scikit-learn's digits: `python -m examples` lists them, `python -m examples.<name>` runs one."""
