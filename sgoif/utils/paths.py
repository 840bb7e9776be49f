"""Where the project's checkout lies. The benchmark runs from a checkout; the library needs none."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
