"""Names the files that a run consists of, those that Snakemake makes for others included.

Snakemake looks for the files that somebody asked for. One that is missing further up goes unnoticed once everything
made from it exists, so `run_snakemake` asks for these.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sgoif.bench.data.holdout import held_out_file
from sgoif.bench.data.noisy_labels import setting_files
from sgoif.bench.execution.plan import CLEAN, Cell, Plan
from sgoif.bench.execution.provenance import PIECES
from sgoif.bench.methods import registry
from sgoif.bench.methods.registry import FOLDS, PLAIN

REPORTED_TASKS = ("noisy", "ood")  # of `make tables`; tuning is asked for by name
TABLE_KINDS = ("md", "tex", "csv", "json")


def is_merged(run_dir: Path) -> bool:
    """Return whether a run was merged from partial runs, so that it has metrics but neither cells nor labels."""
    return (run_dir / PIECES).is_file() and not (run_dir / "batches").is_dir()


def is_finished(run_dir: Path) -> bool:
    """Return whether a run has been computed to its end at least once."""
    return (run_dir / "summary.json").is_file()


def is_selection(plan: Plan) -> bool:
    """Return whether this is a part of a run: it has tables, but neither curves, figures, ledger, page nor store."""
    return bool(plan.config.get("select"))


def data_files(plan: Plan) -> list[Path]:
    """Return meta.json of every dataset that the run reads."""
    return [Path(plan.config["data"]["root"]) / name / "meta.json" for name in sorted(plan.needed_datasets())]


def noise_draws(plan: Plan) -> list[tuple[str, str, int]]:
    """Return (dataset, setting, draw) of all labels that the run's tables depend on."""
    noisy = [
        (dataset, setting, draw)
        for dataset in plan.datasets("noisy")
        for setting in plan.settings("noisy", dataset)
        for draw in plan.draws("noisy", dataset, setting)
    ]
    return noisy + [(dataset, CLEAN, 0) for dataset in plan.datasets("ood") if (dataset, CLEAN, 0) not in noisy]


def label_files(plan: Plan, run_dir: Path) -> list[Path]:
    """Return the files of labels, truths and images that are set aside."""
    files = [path for draw in noise_draws(plan) for path in setting_files(run_dir, *draw)]
    datasets = dict.fromkeys(dataset for dataset, _, _ in noise_draws(plan))
    return files + [held_out_file(run_dir, dataset) for dataset in datasets]


def batch_files(plan: Plan, run_dir: Path) -> dict[Path, list[Cell]]:
    """Return the batch files of all methods and shared runs, each with the cells it lists."""
    found = {}
    for task in REPORTED_TASKS:
        for dataset in plan.datasets(task):
            for method in _measured(plan, task, dataset):
                for number in range(plan.n_batches(task, dataset)):
                    if cells := plan.batch(task, dataset, method, number):
                        found[run_dir / "batches" / task / dataset / method / f"{number}.json"] = cells
    return found


def _measured(plan: Plan, task: str, dataset: str) -> list[str]:
    """Shared runs and methods of a dataset; the folds are computed only if a method reads them."""
    methods = plan.methods(task, dataset)
    kind = registry.task_kind(task)
    folds = any(registry.declaration(kind, registry.split_variant(m)[0]).reads_folds for m in methods)
    return [PLAIN, *methods, *([FOLDS] if folds else [])]


def result_files(plan: Plan, run_dir: Path, figures: Sequence[str] = ()) -> list[Path]:
    """Return what is computed from the cells: metrics, curves, the summary and all that shows it.

    Args:
        plan: The cells of the run.
        run_dir: Folder of the run.
        figures: Names of the files in its folder of figures.
    """
    metrics = [f"metrics/{task}/{dataset}.json" for task in REPORTED_TASKS for dataset in plan.datasets(task)]
    curves = [f"curves/noisy/{dataset}{end}" for dataset in plan.datasets("noisy") for end in (".json", "_gallery.npz")]
    tables = [f"tables/{table}.{kind}" for table in plan.config["tables"] for kind in TABLE_KINDS]
    shown = ["summary.json", "records.csv", *tables, *(f"figures/{name}" for name in figures)]
    if is_selection(plan):
        return [run_dir / name for name in (*metrics, *shown)]
    ends = ["ledger.json", "ledger.md", "report.html"]
    merged = is_merged(run_dir)
    return [run_dir / name for name in (*metrics, *([] if merged else curves), *shown, *ends)]


def missing_sources(plan: Plan, run_dir: Path) -> list[Path]:
    """Return the files of a finished run that are missing, though everything made from them may exist."""
    if not is_finished(run_dir) or is_merged(run_dir):
        return []
    sources = [*data_files(plan), *label_files(plan, run_dir), *batch_files(plan, run_dir)]
    return [path for path in (*sources, *result_files(plan, run_dir)) if not path.is_file()]
