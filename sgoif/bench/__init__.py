"""The benchmark: methods that find wrong labels or out-of-distribution images, measured under the same conditions.

Way in: `python -m sgoif.bench STEP` (`cli`); Snakemake runs one step per rule. Packages, in the order of the pipeline:

* `config`: reads a configuration file, resolves and validates it -> `results/<run>/config.json`.
* `data`: prepares datasets below the data root -> noisy labels and truth in `results/<run>/labels` and `truth`.
* `methods`: what a method may see and must return; the registry of `baselines/`.
* `execution`: plans cells and computes them in batches -> `results/<run>/cells` and `batches`.
* `evaluation`: compares scores with the truth -> `results/<run>/metrics`, `curves` and `summary.json`.
* `tables`, `figures`, `paper`, `report`: what readers see -> `tables/`, `figures/`, `ledger.*` and `report.html`.
* `cost_model`: estimates what a configuration would cost. `sharing`: partial runs, published copies, MLflow.
* `fidelity`: compares attributions with retraining -> `results/<run>/fidelity`.
* `doctor`: says what this machine can run.
"""
