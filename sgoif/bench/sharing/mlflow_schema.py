"""Tells whether a SQLite store has the tables of the MLflow installed here, without importing MLflow.

MLflow writes the revision of its tables into the store and refuses every other one. A run's own store can be made again
from the run's files, so a store of another version is kept under another name and replaced.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shlex
import sqlite3
import sys
from pathlib import Path

from sgoif.errors import UserError

MAX_MESSAGE_LENGTH = 200


def check_file(path: Path) -> None:
    """Refuse a file that is not an undamaged SQLite database.

    Raises:
        UserError: If it is damaged.
    """
    try:
        with contextlib.closing(sqlite3.connect(path)) as db:
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as e:
        found = str(e)
    if found != "ok":
        message = " ".join(found.split())[:MAX_MESSAGE_LENGTH]
        raise UserError(f"{path} is not a usable MLflow store ({message}); delete the file and run again")


def other_version(path: Path) -> str | None:
    """Return how the tables of an undamaged store differ from those of the MLflow installed here.

    Args:
        path: The SQLite file.

    Returns:
        Words for an error line; None if they are the same, or if there are none yet.
    """
    found, (known, newest) = revision(path), _revisions()
    if found is None or found == newest:
        return None
    age = "an older" if found in known else "a newer"
    return f"was written by {age} MLflow (its tables are of revision {found}, here {newest})"


def check_version(path: Path) -> None:
    """Refuse a store of another version of MLflow.

    Raises:
        UserError: If it is of another version, with what to do.
    """
    difference = other_version(path)
    if difference is None:
        return
    upgrade = f"back it up and run `mlflow db upgrade {shlex.quote(f'sqlite:///{path}')}`, or " * (
        "older" in difference
    )
    raise UserError(f"{path} {difference}; {upgrade}move the file away and run again")


def set_aside_other_version(path: Path) -> None:
    """Give a store of another version of MLflow another name, so that a new one can take its place, and say so."""
    difference = other_version(path)
    if difference is None:
        return
    kept = path.with_name(f"{path.name}.{revision(path)}")
    os.replace(path, kept)
    print(f"{path} {difference}; it is kept as {kept.name} and made again from the run's files", file=sys.stderr)


def revision(path: Path) -> str | None:
    """Return the revision of a store's tables; None if it has none yet."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        if not db.execute("select 1 from sqlite_master where name = 'alembic_version'").fetchone():
            return None
        row = db.execute("select version_num from alembic_version").fetchone()
    return str(row[0]) if row else None


@functools.cache
def _revisions() -> tuple[frozenset[str], str]:
    """All revisions that the MLflow installed here knows, and the newest of them."""
    spec = importlib.util.find_spec("mlflow")
    if spec is None or spec.origin is None:
        raise UserError("MLflow is not installed; `make venv` installs it")
    revisions, replaced = set(), set()
    for path in (Path(spec.origin).parent / "store" / "db_migrations" / "versions").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        revisions.update(re.findall(r"^revision\b[^=\n]*= *[\"'](\w+)", text, re.M))
        replaced.update(re.findall(r"^down_revision\b[^=\n]*= *[\"'](\w+)", text, re.M))
    (newest,) = revisions - replaced
    return frozenset(revisions), newest
