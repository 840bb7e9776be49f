"""Lists the examples with the first line of each."""

import ast
from pathlib import Path

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Examples that can be run: the files with a `main`."""
    return sorted(p.stem for p in FOLDER.glob("*.py") if "def main(" in p.read_text() and p.stem != "__main__")


if __name__ == "__main__":
    for name in names():
        what = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())).splitlines()[0]
        print(f"python -m examples.{name}\n    {what}")
