"""Datasets: known facts, download, verification, label noise and reading.

Way in: `prepare.prepare(name, root)` makes data/<name>/ (arrays or lists of files, and meta.json), `load` reads it,
`noisy_labels.write_setting` writes results/<run>/labels and results/<run>/truth, `holdout.hold_out` the images set
aside. `catalogue` holds the facts of every dataset, checksums among them; `checksums` compares arrays with them.
"""
