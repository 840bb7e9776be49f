"""`make demo`: one small table and one figure, made by the whole workflow, and shown in the terminal."""

from __future__ import annotations

import re
from pathlib import Path

from sgoif.bench import figures
from sgoif.bench.config import load_config
from sgoif.bench.execution.launch.run_snakemake import run
from sgoif.bench.run_folder import folder_of

CONFIG = "configs/demo.yaml"
FIGURE = "detection"
METRIC = "AUC-PR"


def demo() -> int:
    """Run the demonstration, print its table and say where table and figure are.

    Returns:
        The exit status of the run.
    """
    config = load_config(CONFIG)
    folder = folder_of(config)
    (table,) = config["tables"]
    drawn = [name for figure in figures.planned(config) if figure.kind == FIGURE for name in figure.files]
    page, pictures = folder / "tables" / f"{table}.md", [folder / "figures" / name for name in drawn]
    status = run([str(page), *map(str, pictures), "--configfile", CONFIG])
    if status == 0:
        print(f"\n{section(page, METRIC)}\n")
        print(f"Table   {page} (.tex .csv .json)")
        print(f"Figure  {', '.join(map(str, pictures))}")
        print("All of the paper's tables: make tables")
    return status


def section(page: Path, metric: str) -> str:
    """Return the table of one metric of a Markdown page, with its heading."""
    found = re.search(rf"^## ({re.escape(metric)}.*?)\n\n((?:\|.*\n)+)", page.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{page} has no section {metric}")
    return f"{found[1]}, higher is better\n\n{found[2].rstrip()}"
