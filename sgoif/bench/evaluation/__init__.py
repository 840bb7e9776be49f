"""Evaluation of a run: from cells and the truth to metrics, and from metrics to the summary.

Way in: `evaluate.evaluate`, `detection_curves.write_curves`, then `summary.summarise`.
Reads the cells and batches of a run, and, alone in the benchmark, results/<run>/truth and the true labels of test sets.
Writes results/<run>/metrics/<task>/<dataset>.json, results/<run>/curves/noisy/<dataset>.json with
<dataset>_gallery.npz, and results/<run>/summary.json.
"""
