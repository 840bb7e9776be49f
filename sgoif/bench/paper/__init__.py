"""Compares every number that the paper prints with public numbers and with what a run measured.

Way in: `comparison.write_ledger(run_dir, config)`.
Reads: the printed and public numbers (`*.yaml` in this folder) and `results/<run>/summary.json`.
Writes: `results/<run>/ledger.json` and `ledger.md`.
"""
