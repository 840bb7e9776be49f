"""The steps behind the command line: each reads its arguments, imports what it needs and calls one function.

Imports are inside the functions, so that a step starts without what the others need (torch, mlflow, matplotlib).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgoif.errors import UserError

if TYPE_CHECKING:
    from sgoif.bench.execution.plan import Plan


def _selection(args: argparse.Namespace) -> dict[str, list[str]]:
    """What the options --methods, --settings, --seeds and --datasets reduce a run to; empty: all of it."""
    from sgoif.bench.config.selection import KEYS, parse_selection

    return parse_selection(**{key: getattr(args, key, None) for key in KEYS})


def open_run(args: argparse.Namespace) -> tuple[Plan, Path]:
    """Plan and folder of a run, from its resolved configuration or the YAML file that it was resolved from."""
    from sgoif.bench.config import check_resolved
    from sgoif.bench.execution.plan import Plan
    from sgoif.bench.run_folder import run_folder
    from sgoif.utils.files import read_json

    path = Path(args.config)
    if path.suffix in (".yaml", ".yml"):
        path = run_folder(path, _selection(args)) / "config.json"
    if not path.is_file():
        raise UserError(f"no configuration {path}; a run writes it when it starts (`make tables`)")
    config = read_json(path)
    check_resolved(config, path)
    return Plan(config), path.parent


def prepare_step(args: argparse.Namespace) -> None:
    """Download, verify and prepare a dataset."""
    from sgoif.bench.data.prepare import prepare

    prepare(args.dataset, args.root, mirror=args.mirror, download=not args.no_download, log=print)


def corrupt_step(args: argparse.Namespace) -> None:
    """Write the noisy labels and the truth of a draw of a noise setting."""
    from sgoif.bench.data.noisy_labels import setting_files, write_setting

    plan, run_dir = open_run(args)
    spec = plan.noise(args.dataset, args.setting, args.draw)
    write_setting(plan.config["data"]["root"], run_dir, args.dataset, args.setting, spec, args.draw)
    for path in setting_files(run_dir, args.dataset, args.setting, args.draw):
        path.touch()


def hold_out_step(args: argparse.Namespace) -> None:
    """Set test images aside with their labels."""
    from sgoif.bench.data.holdout import hold_out

    plan, run_dir = open_run(args)
    hold_out(Path(plan.config["data"]["root"]), run_dir, args.dataset, plan.held_out(args.dataset))


def batch_step(args: argparse.Namespace) -> int | None:
    """Compute the cells of a batch, in several processes if the configuration says so."""
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    plan, run_dir = open_run(args)
    plan.require(args.task, args.dataset, args.method, args.batch)
    execution = plan.config["execution"]
    if execution["device"] == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch is imported
    from sgoif.bench.execution.launch import gpu_slots
    from sgoif.bench.execution.run_batch import run_batch
    from sgoif.bench.execution.truth_guard import forbid_truth
    from sgoif.training import distributed

    processes = plan.processes(args.task, args.dataset, args.method)
    slots: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if not distributed.launched_by_torchrun():  # launched processes use the GPUs of the process that launched them
        nodes, asked = distributed.n_nodes(), processes
        processes = distributed.fitting(asked, len(gpu_slots.visible_gpus()) * nodes)
        if processes < asked:
            print(f"note: {processes} processes instead of {asked}, since each needs a GPU", flush=True)
        folder = Path(".snakemake") / "gpu-slots" / gpu_slots.place()
        slots = gpu_slots.slot(folder, execution["jobs_per_gpu"], max(processes // nodes, 1))
    with slots:
        if processes > 1 and not distributed.launched_by_torchrun():
            names = ("config", "task", "dataset", "method", "batch", "threads")
            return distributed.launch(processes, ["batch", *(f"--{n}={getattr(args, n)}" for n in names)])
        configure_torch(args.threads)
        forbid_truth()
        with distributed.process_group(execution["device"]):
            run_batch(plan, run_dir, args.task, args.dataset, args.method, args.batch, execution["device"])
    return None


def configure_torch(threads: int) -> None:
    """Choose speed on a GPU and determinism on a CPU."""
    import torch

    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    else:
        torch.use_deterministic_algorithms(True)
        # memory is not read before it is written, so filling it first would only take time
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def evaluate_step(args: argparse.Namespace) -> None:
    """Compute the metrics of a dataset."""
    from sgoif.bench.evaluation.evaluate import evaluate

    plan, run_dir = open_run(args)
    plan.require(args.task, args.dataset)
    evaluate(run_dir, Path(plan.config["data"]["root"]), args.task, args.dataset, plan.config)


def curves_step(args: argparse.Namespace) -> None:
    """Compute the curves and images that figures draw."""
    from sgoif.bench.evaluation.detection_curves import write_curves

    plan, run_dir = open_run(args)
    plan.require("noisy", args.dataset)
    write_curves(run_dir, Path(plan.config["data"]["root"]), args.dataset, plan.config)


def summarise_step(args: argparse.Namespace) -> None:
    """Aggregate all metrics over seeds, and write them one by one as CSV and Parquet."""
    from sgoif.bench.evaluation.summary import summarise
    from sgoif.bench.evaluation.tidy_records import write_records

    plan, run_dir = open_run(args)
    summarise(run_dir, plan.config)
    write_records(run_dir, plan.config)


def tables_step(args: argparse.Namespace) -> None:
    """Write the tables."""
    from sgoif.bench.tables import write_tables

    plan, run_dir = open_run(args)
    write_tables(run_dir, plan.config)


def figures_step(args: argparse.Namespace) -> None:
    """Draw the figures, all or those of one module."""
    from sgoif.bench.figures import write_figures

    plan, run_dir = open_run(args)
    write_figures(run_dir, plan.config, args.kind)


def report_step(args: argparse.Namespace) -> None:
    """Write the HTML report and print its path."""
    from sgoif.bench.execution.integrity.outdated import refuse_outdated
    from sgoif.bench.report import write_report

    plan, run_dir = open_run(args)
    refuse_outdated(plan, run_dir)
    print(write_report(run_dir, plan.config))


def fidelity_step(args: argparse.Namespace) -> None:
    """Compare attributions with retraining, for one seed of one measurement."""
    plan, run_dir = open_run(args)
    device = plan.config["execution"]["device"]
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch is imported
    from sgoif.bench.fidelity.cells import measure_cells

    configure_torch(args.threads)
    root = Path(plan.config["data"]["root"])
    measure_cells(run_dir, root, args.name, plan.config["fidelity"][args.name], args.seed, device, print)


def fidelity_table_step(args: argparse.Namespace) -> None:
    """Write the fidelity table."""
    from sgoif.bench.fidelity.table import write_fidelity_table

    plan, run_dir = open_run(args)
    write_fidelity_table(run_dir, plan.config)


def ledger_step(args: argparse.Namespace) -> None:
    """Compare every number of the paper with what was measured."""
    from sgoif.bench.paper.comparison import write_ledger

    plan, run_dir = open_run(args)
    write_ledger(run_dir, plan.config)


def where_step(args: argparse.Namespace) -> None:
    """Print where the results of a run are."""
    from sgoif.bench.evaluation.metric_record import failed_numbers_in_words
    from sgoif.bench.execution.failures import failures_in_words
    from sgoif.bench.execution.launch.run_snakemake import DEFAULT_CONFIG

    plan, run_dir = open_run(args)
    chosen = "" if args.config == DEFAULT_CONFIG else f" CONFIG={args.config}"
    failures = [*failures_in_words(plan, run_dir, f"make retry{chosen}"), *failed_numbers_in_words(run_dir)]
    parquet = " (.parquet)" if (run_dir / "records.parquet").is_file() else ""
    numbers = f"Numbers  {run_dir / 'summary.json'}, {run_dir / 'records.csv'}{parquet}"
    if plan.config.get("select"):
        for table in plan.config["tables"]:
            print((run_dir / "tables" / f"{table}.md").read_text())
        print(f"Tables   {run_dir / 'tables'}: {', '.join(plan.config['tables'])} (.md .tex .csv .json)")
        print(numbers, *failures, sep="\n")
        return
    print(f"Tables   {run_dir / 'tables'}: {', '.join(plan.config['tables'])} (.md .tex .csv .json)")
    print(f"Figures  {run_dir / 'figures'}")
    print(numbers)
    print(f"Ledger   {run_dir / 'ledger.md'}: every number of the paper beside what was measured")
    print(f"Report   {run_dir / 'report.html'}: everything on one page, for a browser")
    print(f"Runs     make ui{chosen}      Workflow make report{chosen}", *failures, sep="\n")


def folder_step(args: argparse.Namespace) -> None:
    """Print the folder of the run that a configuration file describes."""
    from sgoif.bench.run_folder import run_folder

    print(run_folder(args.config, _selection(args)))


def clean_step(args: argparse.Namespace) -> None:
    """Remove the results of one run and say what was removed."""
    from sgoif.bench.run_folder import clean

    print(clean(args.config, _selection(args)))


def verify_step(args: argparse.Namespace) -> int:
    """Check every file of a run and say what to do about those that are damaged; return 1 if some are."""
    from sgoif.bench.execution.integrity import verify
    from sgoif.bench.execution.integrity.run_files import is_selection
    from sgoif.bench.execution.launch.run_snakemake import alone_in_folder
    from sgoif.bench.figures import planned
    from sgoif.bench.sharing.mlflow_store import sqlite_file, store_uri

    plan, run_dir = open_run(args)
    with alone_in_folder():
        whole = not is_selection(plan)
        figures = [name for figure in planned(plan.config) for name in figure.files] if whole else []
        store = sqlite_file(store_uri(run_dir, plan.config)) if whole else None
        found = verify.verify_run(plan, run_dir, figures, store)
        for damage in found.damages:
            print(damage)
        for path in verify.repair(found) if args.repair else []:
            print(f"deleted {path}")
    unsealed = f", {len(found.unsealed)} of them without a checksum" if found.unsealed else ""
    state = f"{len(found.damages)} damaged or missing" if found.damages else "all intact"
    print(f"{run_dir}: {found.checked} files checked{unsealed}: {state}")
    return 1 if found.damages else 0


def retry_step(args: argparse.Namespace) -> None:
    """Forget the failed cells of a run and say which are computed again."""
    from sgoif.bench.execution.launch.run_snakemake import alone_in_folder
    from sgoif.bench.execution.retry import Choice, forget_failures

    plan, run_dir = open_run(args)
    with alone_in_folder():
        forgotten = forget_failures(plan, run_dir, Choice(args.method, args.setting, args.seed, args.dataset))
    for entry in forgotten.chosen:
        print(f"{entry.cell} is tried again; it had failed: {entry.reason}")
    for entry in forgotten.besides:
        print(f"{entry.cell} too, since the same job computes it; it had failed: {entry.reason}")
    print("`make tables` computes them" if forgotten.chosen else "no such cell has failed")


def doctor_step(args: argparse.Namespace) -> int:
    """Print what this machine can run; return 2 if the configuration is wrong."""
    from sgoif.bench.doctor import diagnose

    text, is_right = diagnose(Path(args.config))
    print(text)
    return 0 if is_right else 2


def plan_step(args: argparse.Namespace) -> None:
    """Print the estimated jobs, hours and storage of a configuration."""
    from sgoif.bench.cost_model.estimate import plan_report

    print(plan_report(Path(args.config), select=_selection(args)))


def new_baseline_step(args: argparse.Namespace) -> None:
    """Write the file and the rule of a new method."""
    from sgoif.bench.methods.template import new_baseline

    for path in new_baseline(args.task, args.name):
        print(f"wrote {os.path.relpath(path)}")
    print(f"check it with: {_python()} -m pytest tests/contract -k {args.name}")


def _python() -> str:
    """This interpreter as it is called from this folder, so that a printed command uses the same environment."""
    relative = os.path.relpath(sys.executable)
    return sys.executable if relative.startswith("..") else relative


def demo_step(args: argparse.Namespace) -> int:
    """Make one small table and one figure and print where they are."""
    from sgoif.bench.demo import demo

    return demo()


def run_step(args: argparse.Namespace) -> int:
    """Run Snakemake in this folder and return its exit status."""
    from sgoif.bench.execution.launch.run_snakemake import run

    return run([a for a in args.arguments if a != "--"], _selection(args), args.seconds)


def stretch_step(args: argparse.Namespace) -> int:
    """Run configurations one after another until the time is up, and return an exit status."""
    from sgoif.bench.execution.launch.run_snakemake import run
    from sgoif.bench.execution.launch.time_limit import run_in_order

    def run_one(config: Path, seconds: float) -> int:
        print(f"{config}:", flush=True)
        return run(["--configfile", str(config), *args.option], seconds=seconds)

    return run_in_order([Path(config) for config in args.configs], args.seconds, run_one)
