"""`sgoif apply`: the cleaned list of a scan, and on request a cleaned folder. The originals are only read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sgoif.errors import UserError
from sgoif.scan.output_folder import finished
from sgoif.scan.report import write_csv
from sgoif.scan.sources.csv_file import read_rows
from sgoif.utils.files import read_json

DECISIONS = ("keep", "relabel", "remove")


def apply(folder: Path, decisions: Path | None, out: Path | None, tree: Path | None, link: bool) -> dict[str, int]:
    """Write the cleaned list to `out` (default: cleaned.csv in the scan's folder) and the files to `tree`, if given.

    `decisions` is the gallery's export; None removes what the scan flagged. Returns how many of each there were.
    """
    about = finished(folder)
    rows = read_rows(folder / "ranking.csv", ("path", "given_label", "flagged"), strip=False)
    given = {path: label for _, path, label, _ in rows}
    if decisions is None:
        made = {path: ("remove", label) for _, path, label, flagged in rows if flagged == "true"}
    else:
        made = read_decisions(decisions, given, about["classes"])
    base = None if about["base"] is None else Path(about["base"])
    if tree is not None and base is None:
        raise UserError(f"{about['source']} has no files of its own to copy or link; leave --copy and --link out")
    if tree is not None and about["kind"] == "folder" and tree.resolve().is_relative_to(base):
        raise UserError(f"{tree} lies inside {base}, where it would be taken for a class; choose another place")
    kept = [(path, made[path][1] if path in made else given[path]) for path in sorted(given)]
    kept = [(path, label) for path, label in kept if made.get(path, ("keep",))[0] != "remove"]
    full = [str(path if base is None else base / path) for path, _ in kept]
    out = out or folder / "cleaned.csv"
    originals = {Path(p) for p in full} | ({base / Path(about["source"]).name} if about["kind"] == "csv" else set())
    if out.resolve() in originals:
        raise UserError(f"--out {out} is one of the originals; choose another name")
    if tree is not None:
        build_tree(tree, base, kept, link)
    write_csv(out, {"path": full, "label": [label for _, label in kept]})
    counts = {word: sum(d == word for d, _ in made.values()) for word in DECISIONS}
    return {"before": len(given), "after": len(kept), **counts}


def read_decisions(path: Path, given: dict[str, str], classes: list[str]) -> dict[str, tuple[str, str]]:
    """path -> (decision, label) of the gallery's CSV or JSON export, every entry checked."""
    if not path.is_file():
        raise UserError(f"no file {path}: export the decisions from gallery.html first")
    if path.suffix.lower() == ".json":
        try:
            entries = [(e["path"], e["decision"], e["label"]) for e in read_json(path)["decisions"]]
        except (KeyError, TypeError):
            raise UserError(
                f"{path} is not an export of gallery.html: it lacks decisions with path and label"
            ) from None
        rows = [(f"entry {n}", *entry) for n, entry in enumerate(entries, 1)]
    else:
        rows = [(f"line {line}", *rest) for line, *rest in read_rows(path, ("path", "decision", "label"), strip=False)]
    made: dict[str, tuple[str, str]] = {}
    for where, name, decision, label in rows:
        if name not in given:
            raise UserError(f"{path}, {where}: {name} is not in this scan; are the decisions of another one?")
        if name in made:
            raise UserError(f"{path}, {where}: a second decision about {name}")
        if decision not in DECISIONS:
            raise UserError(f"{path}, {where}: {decision!r} is no decision; use {', '.join(DECISIONS)}")
        if decision == "relabel" and label not in classes:
            raise UserError(f"{path}, {where}: no class {label!r}; there are: {', '.join(classes[:12])}")
        made[name] = (decision, label if decision == "relabel" else given[name])
    return made


def build_tree(tree: Path, base: Path, kept: list[tuple[str, str]], link: bool) -> None:
    """TREE/<label>/<file>: copies, or symbolic links to the originals. Only into a new or empty folder."""
    if tree.exists() and (not tree.is_dir() or any(tree.iterdir())):
        raise UserError(f"{tree} is not an empty folder; choose a new one")
    odd = sorted({label for _, label in kept if not plain(label)})
    if odd:
        raise UserError(f"the label {odd[0]!r} cannot be the name of a folder; use the list instead of a tree")
    taken: set[Path] = set()
    for path, label in kept:
        inner = Path(path)
        inner = Path(*inner.parts[1:]) if len(inner.parts) > 1 and not inner.is_absolute() else Path(inner.name)
        if ".." in inner.parts:
            inner = Path(inner.name)
        target, n = tree / label / inner, 1
        while target in taken:
            n += 1
            target = tree / label / inner.with_name(f"{inner.stem}-{n}{inner.suffix}")
        taken.add(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        original = base / path
        if not original.is_file():
            raise UserError(f"{original} is gone since the scan; {tree} is incomplete")
        if link:
            target.symlink_to(original.resolve())
        else:
            shutil.copy2(original, target)


def plain(label: str) -> bool:
    """Whether a label can be the name of one folder."""
    return label not in ("", ".", "..") and not any(c in label for c in ("/", os.sep, "\0")) and len(label) < 200
