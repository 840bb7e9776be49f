"""What is read from a method's source must be what its class says once it is imported."""

from __future__ import annotations

from dataclasses import MISSING, fields

from sgoif.bench.methods import registry
from sgoif.bench.methods.declaration import RowDeclaration


def check_declaration(task: str, name: str) -> None:
    """Fail unless every declared attribute has the same value in the imported class."""
    kind, declared = registry.load(task, name), registry.declaration(task, name)
    for field in fields(declared):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        value = getattr(kind, field.name, None if field.name == "name" else default)
        if field.name in ("candidates", "parts", "sweep"):
            value = dict(value)
        if field.name == "shown_variants":
            value = {variant: RowDeclaration(**row) for variant, row in kind.shown_variants.items()}
        assert getattr(declared, field.name) == value, field.name
