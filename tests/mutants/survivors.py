"""Reads `survivors.toml`: the mutants that no test can or need notice, and those for which a test was added."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("survivors.toml")


@dataclass(frozen=True)
class Survivor:
    """A change that does not matter.

    Attributes:
        file: The source file.
        function: The function or class it is in, empty at the top of the file.
        before: What is changed, as it stands in the file.
        reason: Why no test notices it.
        after: What takes its place; empty for any change of it.
        within: Part of the line that is changed, where the function has the same text more than once.
    """

    file: str
    function: str
    before: str
    reason: str
    after: str = ""
    within: str = ""

    def covers(self, record: Mapping[str, Any]) -> bool:
        """Say whether a mutant is this change; lines do not count, so that edits elsewhere change nothing."""
        same = all(record[name] == getattr(self, name) for name in ("file", "function", "before"))
        return same and self.after in ("", record["after"]) and self.within in record["diff"][0]


def read_survivors(path: Path = FILE) -> list[Survivor]:
    """Read the list."""
    return [Survivor(**entry) for entry in tomllib.loads(path.read_text())["survivor"]]


def read_noticed(path: Path = FILE) -> list[Survivor]:
    """Read the mutants of an earlier run for which a test was added; their `reason` names the test file."""
    return [Survivor(**entry) for entry in tomllib.loads(path.read_text()).get("noticed", [])]


def reason_for(record: Mapping[str, Any], survivors: Sequence[Survivor]) -> str:
    """Return why a mutant does not matter, or nothing if no entry covers it."""
    return next((survivor.reason for survivor in survivors if survivor.covers(record)), "")
