"""The root of the project's checkout. The benchmark runs from a checkout; the library needs none."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
