"""The one command line behind every rule: `python -m sgoif.bench <step> …`.

A user's mistake is told in one line, without a traceback.
"""

import argparse
import contextlib
import errno
import os
import sys
from pathlib import Path

from sgoif.errors import UserError
from sgoif.utils.interrupt import heeded


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        with heeded():
            return args.step(args) or 0
    except UserError as e:
        print(f"error: {e}", file=sys.stderr)
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


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m sgoif.bench", description=__doc__)
    steps = top.add_subparsers(required=True, metavar="STEP")

    def step(function, help: str, *names: str) -> argparse.ArgumentParser:
        p = steps.add_parser(function.__name__.strip("_").replace("_", "-"), help=help)
        p.set_defaults(step=function)
        for name in names:
            p.add_argument(f"--{name}", required=True)
        return p

    step(_prepare, "fetch, verify and prepare a dataset", "config", "dataset")
    step(_corrupt, "write the noisy labels and the truth of a noise setting", "config", "dataset", "setting")
    step(_hold_out, "set test images aside with their labels", "config", "dataset")
    p = step(_batch, "compute the cells of a batch", "config", "task", "dataset", "method")
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--threads", type=int, default=1)
    step(_evaluate, "compute the metrics of a dataset", "config", "task", "dataset")
    step(_curves, "compute the curves and the gallery that figures draw", "config", "dataset")
    step(_summarise, "aggregate all metrics over seeds", "config")
    step(_tables, "render the tables", "config")
    p = step(_figures, "draw the figures", "config")
    p.add_argument("--kind", help="only those of this module of sgoif/bench/figures")
    step(_ledger, "compare every number of the paper with what was measured", "config")
    step(_report, "write the self-contained HTML report", "config")
    step(_track_init, "create the MLflow store", "config")
    step(_track, "import a finished run into MLflow", "config")
    step(_publish, "copy tables, figures and provenance to results/published", "config")
    p = step(_carry, "put the records of all finished cells into one small file", "config", "out")
    p.add_argument("--commit", default="", help="of cells that do not know theirs, computed where there is no git")
    p.add_argument("--note", default="", help="how they were measured, for readers of the provenance")
    p = step(_adopt, "make a run of pieces that were carried here", "config")
    p.add_argument("files", nargs="+", metavar="FILE", help="a piece; where two hold a cell, the later one counts")
    step(_where, "say where the results of a run are", "config")
    p = step(_doctor, "say what this machine can run")
    p.add_argument("--config", default="configs/embedded.yaml")
    p = step(_plan, "estimate jobs, hours and storage of a configuration")
    p.add_argument("--config", default="configs/paper.yaml")
    step(_new_baseline, "write the file and the rule of a new method", "task", "name")
    p = step(_run, "run Snakemake in this folder, one run at a time")
    p.add_argument("arguments", nargs=argparse.REMAINDER)
    return top


def _open(args):
    """(plan, run folder) of a resolved configuration."""
    from sgoif.bench.config import check_resolved
    from sgoif.bench.execution.plan import Plan
    from sgoif.utils.files import read_json

    path = Path(args.config)
    if not path.is_file():
        raise UserError(f"no configuration {path}; Snakemake writes it when it plans a run")
    config = read_json(path)
    check_resolved(config, path)
    return Plan(config), path.parent


def _data(plan) -> dict:
    data = plan.config["data"]
    mirror = Path(data["mirror"]) if data["mirror"] else None
    return {"data_root": Path(data["root"]), "mirror": mirror, "download": data["download"]}


def _prepare(args):
    from sgoif.bench.data.prepare import prepare

    plan, _ = _open(args)
    path = prepare(args.dataset, **_data(plan), say=print)
    (path / "meta.json").touch()


def _corrupt(args):
    from sgoif.bench.data.noisy_labels import setting_files, write_setting

    plan, run_dir = _open(args)
    spec = plan.noise(args.dataset, args.setting)
    write_setting(plan.config["data"]["root"], run_dir, args.dataset, args.setting, spec)
    for path in setting_files(run_dir, args.dataset, args.setting):
        path.touch()


def _hold_out(args):
    from sgoif.bench.data.holdout import hold_out

    plan, run_dir = _open(args)
    hold_out(Path(plan.config["data"]["root"]), run_dir, args.dataset, plan.held_out(args.dataset))


def _batch(args):
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    from sgoif.bench.execution import gpu_slots

    plan, run_dir = _open(args)
    plan.require(args.task, args.dataset, args.method, args.batch)
    execution = plan.config["execution"]
    use_gpu = execution["device"] != "cpu"
    if not use_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import torch

    from sgoif.bench.execution.run_batch import run_batch
    from sgoif.bench.execution.truth_guard import forbid_truth
    from sgoif.training import distributed

    count = plan.processes(args.task, args.method)
    taken = contextlib.nullcontext()  # processes that were launched use the GPUs of the one that launched them
    if not distributed.launched():
        taken = gpu_slots.slot(Path(".snakemake") / "gpu-slots" / gpu_slots.place(), execution["jobs_per_gpu"], count)
    with taken:
        if count > 1 and not distributed.launched():
            given = [
                f"--{name}={getattr(args, name)}"
                for name in ("config", "task", "dataset", "method", "batch", "threads")
            ]
            return distributed.launch(count, ["batch", *given])
        torch.set_num_threads(args.threads)
        if torch.cuda.is_available():
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True
            torch.backends.cudnn.benchmark = True
        else:
            torch.use_deterministic_algorithms(True)
        forbid_truth()
        with distributed.together(execution["device"]):
            run_batch(plan, run_dir, args.task, args.dataset, args.method, args.batch, execution["device"])


def _evaluate(args):
    from sgoif.bench.evaluation.evaluate import evaluate

    plan, run_dir = _open(args)
    plan.require(args.task, args.dataset)
    evaluate(run_dir, Path(plan.config["data"]["root"]), args.task, args.dataset, plan.config)


def _curves(args):
    from sgoif.bench.evaluation.detection_curves import write_curves

    plan, run_dir = _open(args)
    plan.require("noisy", args.dataset)
    write_curves(run_dir, Path(plan.config["data"]["root"]), args.dataset, plan.config)


def _summarise(args):
    from sgoif.bench.evaluation.summary import summarise

    plan, run_dir = _open(args)
    summarise(run_dir, plan.config)


def _tables(args):
    from sgoif.bench.tables import write_tables

    plan, run_dir = _open(args)
    write_tables(run_dir, plan.config)


def _figures(args):
    from sgoif.bench.figures import write_figures

    plan, run_dir = _open(args)
    write_figures(run_dir, plan.config, args.kind)


def _report(args):
    from sgoif.bench.report import write_report

    plan, run_dir = _open(args)
    print(write_report(run_dir, plan.config))


def _ledger(args):
    from sgoif.bench.paper.comparison import write_ledger

    plan, run_dir = _open(args)
    write_ledger(run_dir, plan.config)


def _track_init(args):
    from sgoif.bench.sharing.mlflow_import import init_store, store_uri

    plan, run_dir = _open(args)
    init_store(store_uri(run_dir, plan.config))


def _track(args):
    from sgoif.bench.sharing.mlflow_import import import_run, store_uri

    plan, run_dir = _open(args)
    import_run(run_dir, store_uri(run_dir, plan.config))


def _publish(args):
    from sgoif.bench.sharing.publish import publish

    plan, run_dir = _open(args)
    print(publish(run_dir, run_dir.parent / "published" / plan.config["run"], plan.config))


def _carry(args):
    from sgoif.bench.sharing.export import carry

    plan, run_dir = _open(args)
    out = Path(args.out)
    piece, left_out = carry(plan, run_dir, out, args.commit, args.note)
    for line in left_out:
        print(f"warning: left out: {line}", file=sys.stderr)
    size = out.stat().st_size / 2**20
    print(f"{out}: {len(piece['cells'])} cells, {len(left_out)} left out, {size:.2f} MiB")


def _adopt(args):
    from sgoif.bench.sharing.merge import adopt

    print(adopt([Path(path) for path in args.files], Path(args.config), Path("results")))


def _where(args):
    plan, run_dir = _open(args)
    print(f"Tables   {run_dir / 'tables'}: {', '.join(plan.config['tables'])} (.md .tex .csv .json)")
    print(f"Figures  {run_dir / 'figures'}")
    print(f"Numbers  {run_dir / 'summary.json'}")
    print(f"Ledger   {run_dir / 'ledger.md'}: every number of the paper beside what was measured")
    print(f"Report   {run_dir / 'report.html'}: everything on one page, for a browser")
    print("Runs     make ui      Workflow make report")


def _doctor(args):
    from sgoif.bench.doctor import report

    print(report(Path(args.config)))


def _plan(args):
    from sgoif.bench.cost_model.estimate import report

    print(report(Path(args.config)))


def _new_baseline(args):
    from sgoif.bench.methods.template import new_baseline

    for path in new_baseline(args.task, args.name):
        print(f"wrote {os.path.relpath(path)}")
    print(f"check it with: python -m pytest tests/contract -k {args.name}")


def _run(args):
    from sgoif.bench.execution.run_snakemake import run

    return run([a for a in args.arguments if a != "--"])
