"""Execution of a run: what there is to compute, and the jobs that compute it.

Way in: `plan.Plan` (cells and batches of a configuration), `run_batch.run_batch` (one job), `launch.run_snakemake`.
Reads results/<run>/config.json, the prepared data and results/<run>/labels, never the truth (`truth_guard`).
Writes for each cell results/<run>/cells/<task>/<dataset>/<setting>/seed<n>/<method>/ (result.json, arrays.npz,
checkpoints) and for each batch results/<run>/batches/<task>/<dataset>/<method>/<number>.json.
"""
