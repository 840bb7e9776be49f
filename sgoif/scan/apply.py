"""`sgoif apply`: the cleaned list of a scan, and on request a cleaned folder. The originals are only read."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgoif.errors import UserError
from sgoif.scan.output_folder import REMAKE, read_finished, require_free
from sgoif.scan.report import write_csv
from sgoif.scan.sources.csv_rows import read_rows
from sgoif.scan.sources.regular_files import require_no_special

ACTIONS = ("keep", "relabel", "remove")
MAX_NAMED_CLASSES = 12  # in an error message
MAX_FOLDER_NAME = 200  # characters


@dataclass(frozen=True)
class Decision:
    """What to do with one example.

    Attributes:
        action: "keep", "relabel" or "remove".
        label: Label of the example afterwards.
    """

    action: str
    label: str


@dataclass(frozen=True)
class Applied:
    """What `apply` did.

    Attributes:
        before: Examples of the scan.
        after: Examples of the cleaned list.
        decided: Number of decisions by action.
        unseen: Examples without a decision that were removed for their probability.
        expected_right: How many of these have a right label, by their probabilities.
    """

    before: int
    after: int
    decided: dict[str, int]
    unseen: int
    expected_right: float


def apply(
    folder: Path, decisions: Path | None, above: float | None, out: Path | None, tree: Path | None, link: bool
) -> Applied:
    """Write the cleaned list of a finished scan.

    Args:
        folder: Folder of the scan.
        decisions: The gallery's export, CSV or JSON.
        above: Remove also the examples without a decision whose label is wrong with at least this probability.
        out: The list to write; None: cleaned.csv in the scan's folder.
        tree: Folder for the files of the cleaned data set, TREE/<label>/<file>; None: write the list alone.
        link: Link the files of the tree instead of copying them.

    Raises:
        UserError: If neither decisions nor a probability are given, the scan is not finished, a decision does not fit
            it, or a file would be overwritten.
    """
    scan = read_finished(folder)
    if decisions is None and above is None:
        page = folder / "gallery.html"
        raise UserError(
            f"nothing is decided yet: review {page}, export, and give --decisions FILE; to remove without a look what "
            "is wrong with a probability of at least 0.9, give --above 0.9"
        )
    if above is not None and not 0 < above <= 1:
        raise UserError(f"--above {above:g}: a probability is needed, above 0 and at most 1")
    base = None if scan["base"] is None else Path(scan["base"])
    labels, probability = _read_ranking(folder, scan["examples"])
    made = {} if decisions is None else read_decisions(decisions, labels, scan["classes"])
    decided = {action: sum(d.action == action for d in made.values()) for action in ACTIONS}
    unseen = [path for path in labels if above is not None and path not in made and probability[path] >= above]
    made |= {path: Decision("remove", labels[path]) for path in unseen}
    _check_tree(tree, scan, base)
    kept = _kept_examples(labels, made)
    files = [str(path if base is None else base / path) for path, _ in kept]
    out = out or folder / "cleaned.csv"
    others = set() if base is None else {base / path for path in labels}
    require_free(out, folder, scan, others if decisions is None else others | {decisions.resolve()})
    if tree is not None and base is not None:
        build_tree(tree, base, kept, link)
    write_csv(out, {"path": files, "label": [label for _, label in kept]})
    return Applied(len(labels), len(kept), decided, len(unseen), sum(1 - probability[path] for path in unseen))


def _read_ranking(folder: Path, examples: int) -> tuple[dict[str, str], dict[str, float]]:
    """Return the label of each path of the ranking, and the probability that it is wrong."""
    path = folder / "ranking.csv"
    if not path.exists():
        raise UserError(f"{path} is gone; run the same `sgoif scan` again")
    rows = read_rows(path, ("path", "given_label", "wrong_probability"), strip=False)
    labels = {row.cells[0]: row.cells[1] for row in rows}
    if len(labels) != examples:  # those that are missing would not be in the cleaned list
        raise UserError(f"{path} has {len(labels)} of the {examples} examples; delete it and run the same scan again")
    try:
        return labels, {row.cells[0]: float(row.cells[2]) for row in rows}
    except ValueError as e:
        raise UserError(f"{path}: {e} in the column wrong_probability; {REMAKE}") from None


def _check_tree(tree: Path | None, scan: dict[str, Any], base: Path | None) -> None:
    if tree is None:
        return
    if base is None:
        raise UserError(f"{scan['source']} has no files of its own to copy or link; leave --copy and --link out")
    if scan["kind"] == "folder" and tree.resolve().is_relative_to(base):
        raise UserError(f"{tree} lies inside {base}, where it would be taken for a class; choose another place")


def _kept_examples(labels: dict[str, str], made: dict[str, Decision]) -> list[tuple[str, str]]:
    """Return (path, label) of the examples that are not removed, sorted by path."""
    kept = []
    for path in sorted(labels):
        decision = made.get(path, Decision("keep", labels[path]))
        if decision.action != "remove":
            kept.append((path, decision.label))
    return kept


def read_decisions(path: Path, labels: dict[str, str], classes: list[str]) -> dict[str, Decision]:
    """Read the gallery's export and check every entry.

    Args:
        path: The export, CSV or JSON.
        labels: Label of each example of the scan by its path.
        classes: Names of the classes.

    Returns:
        The decisions by path.

    Raises:
        UserError: If the file is no export, or an entry does not fit the scan.
    """
    made: dict[str, Decision] = {}
    for where, name, action, label in _read_entries(path):
        if name not in labels:
            raise UserError(f"{path}, {where}: {name} is not in this scan; are the decisions of another one?")
        if name in made:
            raise UserError(f"{path}, {where}: a second decision about {name}")
        if action not in ACTIONS:
            raise UserError(f"{path}, {where}: {action!r} is no decision; use {', '.join(ACTIONS)}")
        if action == "relabel" and label not in classes:
            there = ", ".join(classes[:MAX_NAMED_CLASSES])
            raise UserError(f"{path}, {where}: no class {label!r}; there are: {there}")
        made[name] = Decision(action, label if action == "relabel" else labels[name])
    return made


def _read_entries(path: Path) -> list[tuple[str, str, str, str]]:
    """Return (place in the file, path, action, label) of each entry of an export."""
    require_no_special(path, "export the decisions from gallery.html to a file")
    if not path.is_file():
        raise UserError(f"no file {path}: export the decisions from gallery.html first")
    if path.suffix.lower() != ".json":
        rows = read_rows(path, ("path", "decision", "label"), strip=False)
        return [(f"line {row.line}", row.cells[0], row.cells[1], row.cells[2]) for row in rows]
    try:
        entries = [(e["path"], e["decision"], e["label"]) for e in json.loads(path.read_bytes())["decisions"]]
    except ValueError as e:
        raise UserError(f"{path} is not valid JSON ({e}); export the decisions from gallery.html again") from None
    except (KeyError, TypeError):
        raise UserError(f"{path} is not an export of gallery.html: it lacks decisions with path and label") from None
    odd = [n for n, entry in enumerate(entries, 1) if not all(isinstance(value, str) for value in entry)]
    if odd:
        raise UserError(f"{path}, entry {odd[0]}: path, decision and label must be texts, as gallery.html writes them")
    return [(f"entry {n}", *entry) for n, entry in enumerate(entries, 1)]


def build_tree(tree: Path, base: Path, kept: list[tuple[str, str]], link: bool) -> None:
    """Write TREE/<label>/<file> for every example: a copy, or a symbolic link to the original.

    Args:
        tree: A new or empty folder.
        base: Folder that the paths are relative to.
        kept: (path, label) of the examples.
        link: Link instead of copying.

    Raises:
        UserError: If the folder is not empty, a label cannot name a folder, or an original is gone.
    """
    if tree.exists() and (not tree.is_dir() or any(tree.iterdir())):
        raise UserError(f"{tree} is not an empty folder; choose a new one")
    odd = sorted({label for _, label in kept if not _can_name_a_folder(label)})
    if odd:
        raise UserError(f"the label {odd[0]!r} cannot be the name of a folder; use the list instead of a tree")
    gone = [path for path, _ in kept if not (base / path).is_file()]
    if gone:
        are = f"and {len(gone) - 1} more are" if len(gone) > 1 else "is"
        raise UserError(f"{base / gone[0]} {are} gone since the scan; scan again, or put back what is missing")
    taken: set[Path] = set()
    for path, label in kept:
        target = _free_name(tree / label / _path_below_class(path), taken)
        taken.add(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        original = base / path
        if link:
            target.symlink_to(original.resolve())
        else:
            shutil.copy2(original, target)


def _path_below_class(path: str) -> Path:
    """Return the path without its first folder, or the file name alone where the path leads elsewhere."""
    original = Path(path)
    if original.is_absolute() or len(original.parts) == 1 or ".." in original.parts[1:]:
        return Path(original.name)
    return Path(*original.parts[1:])


def _free_name(target: Path, taken: set[Path]) -> Path:
    """Return `target`, with -2, -3, … behind its stem if that is taken."""
    free = target
    n = 1
    while free in taken:
        n += 1
        free = target.with_name(f"{target.stem}-{n}{target.suffix}")
    return free


def _can_name_a_folder(label: str) -> bool:
    if label in ("", ".", "..") or len(label) >= MAX_FOLDER_NAME:
        return False
    return not any(character in label for character in ("/", os.sep, "\0"))
