"""Writes the report of a run: all its results on one HTML page that opens from disk, without network.

Way in: `write_report(run_dir, config)`. Reads `results/<run>/summary.json`, `metrics`, `figures` and `ledger.json`;
writes `results/<run>/report.html`. Jinja fills the template `page.html` and escapes every value; the page's security
policy lets nothing run or load but its own script.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgoif.bench import figures
from sgoif.bench.evaluation.summary_record import layouts, read_summary
from sgoif.bench.evaluation.table_layout import stand_ins
from sgoif.bench.execution.provenance import provenance
from sgoif.bench.report.headline import headline
from sgoif.bench.report.ledger import ledger_section
from sgoif.bench.report.sections import cost_section, failures_section, table_section
from sgoif.bench.tables import build_tables
from sgoif.utils.files import atomic_write_text

TEMPLATES = ("page.html", "page.css", "page.js")
FOLDER = Path(__file__).parent


def template_hash() -> str:
    """Return a hash of the template files; the report is written again when they change."""
    return hashlib.sha256(b"".join((FOLDER / name).read_bytes() for name in TEMPLATES)).hexdigest()[:16]


def write_report(run_dir: Path | str, config: Mapping[str, Any]) -> Path:
    """Write the report of a finished run.

    Args:
        run_dir: Folder of the run.
        config: Its resolved configuration.

    Returns:
        The file.
    """
    path = Path(run_dir) / "report.html"
    atomic_write_text(path, report_page(Path(run_dir), config), seal=True)
    path.touch()  # Snakemake compares times, so an unchanged file must look new too
    return path


def report_page(run_dir: Path, config: Mapping[str, Any], linked: bool = False) -> str:
    """Return the page of a finished run.

    Args:
        run_dir: Folder of the run.
        config: Its resolved configuration.
        linked: Whether it shows the figures that lie beside it, as `<figure>.png`; else they are in the page.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from sgoif.bench.fidelity.table import build_fidelity_tables  # needs torch, which a plan does not

    records = read_summary(run_dir)
    css, script = ((FOLDER / name).read_text() for name in TEMPLATES[1:])
    page = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    ledger = ledger_section(run_dir / "ledger.json")
    failures = failures_section(run_dir, config)
    return page.get_template(TEMPLATES[0]).render(
        run=config["run"],
        css=css,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        stand_ins=stand_ins(panel for layout in layouts(records).values() for panel in layout.panels),
        tables=[table_section(t) for t in [*build_tables(records), *build_fidelity_tables(run_dir, config)]],
        figures=_figures(run_dir, config, linked),
        image_sources="'self' file:" if linked else "data:",
        headline=headline(records, failures, ledger),
        ledger=ledger,
        cost=cost_section(run_dir),
        failures=failures,
        configuration=json.dumps(config, indent=1, ensure_ascii=False),
        origin=provenance(run_dir, dict(config)),
    )


def _figures(run_dir: Path, config: Mapping[str, Any], linked: bool) -> list[dict[str, Any]]:
    """Title, caption and image (as a data address, or the name of a file) of every figure that shows something."""
    out = []
    for one in figures.drawn(run_dir, config):
        files = [run_dir / "figures" / name for name in one.files]
        picture = f"{one.name}.png" if linked else _data_address(files)
        title = f"{one.module.TITLE}{'' if one.module.TITLE.endswith('?') else ':'} {one.about(config)}"
        out.append({"name": one.name, "title": title, "caption": one.module.CAPTION, "picture": picture})
    return out


def _data_address(files: Sequence[Path]) -> str:
    """Return the smallest of several files of one picture as a data address."""
    smallest = min((path for path in files if path.is_file()), key=lambda path: path.stat().st_size)
    kind = {".svg": "image/svg+xml", ".png": "image/png"}[smallest.suffix]
    return f"data:{kind};base64,{base64.b64encode(smallest.read_bytes()).decode()}"
