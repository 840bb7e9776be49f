"""Finding methods: a method is a file in baselines/<task>, known by its name without being imported."""

import functools
import importlib
import sys

from sgoif.errors import UserError
from sgoif.utils.paths import ROOT

FOLDER = ROOT / "baselines"
TASKS = ("noisy", "ood")


@functools.cache
def available(task: str) -> tuple[str, ...]:
    """Names of all methods of a task, by listing the folder."""
    return tuple(sorted(p.stem for p in (FOLDER / task).glob("*.py") if not p.stem.startswith("_")))


def load(task: str, name: str) -> type:
    """The method's class: the one whose `name` is the file's stem."""
    if name not in available(task):
        raise UserError(f"no {task} method {name!r}; there are: {', '.join(available(task))}")
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))  # baselines are part of the checkout, not of the installed package
    module = importlib.import_module(f"baselines.{task}.{name}")
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__ and getattr(value, "name", None) == name:
            return value
    raise UserError(f"baselines/{task}/{name}.py has no class with name = {name!r}")


def split(method: str) -> tuple[str, str]:
    """`sgoif@no_gate` -> (`sgoif`, `no_gate`)."""
    name, _, variant = method.partition("@")
    return name, variant
