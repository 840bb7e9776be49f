"""The steps that share a run: MLflow, publishing, export and merging of records.

As in `steps`, imports are inside the functions, so that a step starts without what the others need.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sgoif.bench.steps import open_run


def track_init_step(args: argparse.Namespace) -> None:
    """Create the MLflow store."""
    from sgoif.bench.sharing.mlflow_store import init_store, store_uri

    plan, run_dir = open_run(args)
    init_store(store_uri(run_dir, plan.config), run_dir)


def track_step(args: argparse.Namespace) -> None:
    """Import a finished run into MLflow."""
    from sgoif.bench.sharing.mlflow_import import import_run
    from sgoif.bench.sharing.mlflow_store import store_uri

    plan, run_dir = open_run(args)
    import_run(run_dir, store_uri(run_dir, plan.config))


def ui_step(args: argparse.Namespace) -> None:
    """Serve MLflow's pages of a run until Ctrl-C."""
    from sgoif.bench.sharing.mlflow_store import store_uri
    from sgoif.bench.sharing.mlflow_ui import serve

    plan, run_dir = open_run(args)
    serve(run_dir, store_uri(run_dir, plan.config), args.port)


def publish_step(args: argparse.Namespace) -> None:
    """Copy tables, figures and provenance to results/published."""
    from sgoif.bench.execution.integrity.outdated import refuse_outdated
    from sgoif.bench.sharing.publish import publish

    plan, run_dir = open_run(args)
    refuse_outdated(plan, run_dir)
    print(publish(run_dir, run_dir.parent / "published" / plan.config["run"], plan.config))


def republish_step(args: argparse.Namespace) -> None:
    """Rebuild what is published of a run from its committed records, and say what changed."""
    from sgoif.bench.run_folder import RESULTS
    from sgoif.bench.sharing.republish import republish

    folder, changed = republish(Path(args.config), RESULTS)
    told = f"{len(changed)} files changed: {', '.join(changed)}" if changed else "unchanged"
    print(f"{folder}: {told}")


def export_records_step(args: argparse.Namespace) -> None:
    """Write the records of all finished cells into one small file."""
    from sgoif.bench.sharing.export import export_records

    plan, run_dir = open_run(args)
    out = Path(args.out)
    content, left_out = export_records(plan, run_dir, out, args.commit, args.note)
    for line in left_out:
        print(f"warning: left out: {line}", file=sys.stderr)
    size = out.stat().st_size / 2**20
    print(f"{out}: {len(content['cells'])} cells, {len(left_out)} left out, {size:.2f} MiB")


def pack_records_step(args: argparse.Namespace) -> None:
    """Add partial runs to the one file of a published run's records; it still has to be published again."""
    from sgoif.bench.config import load_config
    from sgoif.bench.run_folder import RESULTS
    from sgoif.bench.sharing.records_file import pack_records, records_of_run

    run = load_config(args.config)["run"]
    out = records_of_run(RESULTS, run)
    before = [out] if out.is_file() and not args.fresh else []
    parts = pack_records([*before, *map(Path, args.files)], out, run)
    cells = sum(len(part["cells"]) for _, part in parts)
    size = out.stat().st_size / 2**20
    print(f"{out}: {cells} cells of {len(parts)} partial runs, {size:.2f} MiB; `make published` makes the tables of it")


def merge_records_step(args: argparse.Namespace) -> None:
    """Make one run of files written by `export-records`."""
    from sgoif.bench.sharing.merge import merge_records

    print(merge_records([Path(path) for path in args.files], Path(args.config), Path("results")))
