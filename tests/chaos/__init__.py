"""Faults injected into a small run: afterwards its tables are the same bits, or the error names the file and the cure.

`python -m tests.chaos` (or `make chaos`) injects them all and writes docs/chaos.md; the test suite injects a few.
"""
