"""Check a configuration against its JSON schema (`config.schema.json`) and fill in the defaults it states."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgoif.errors import UserError
from sgoif.utils.suggest import hint_at_number, suggest

if TYPE_CHECKING:
    from jsonschema import ValidationError

SCHEMA_FILE = Path(__file__).with_name("config.schema.json")
EMPTY_VALUES: dict[str, Any] = {"params": {}, "variants": {}, "tables": {}, "not_run": []}


def read_schema() -> dict[str, Any]:
    """Read the JSON schema of configurations."""
    return json.loads(SCHEMA_FILE.read_text())


def check_schema(config: Any) -> None:
    """Check a configuration against the schema.

    Raises:
        UserError: For the outermost violation; the message names the key by its path and the nearest valid names.
    """
    from jsonschema import Draft202012Validator

    errors = sorted(Draft202012Validator(read_schema()).iter_errors(config), key=lambda e: len(e.absolute_path))
    if errors:
        raise UserError(_message(errors[0]))


def _message(error: ValidationError) -> str:
    """Describe a violation of the schema in one line: the key, and what is wrong with it."""
    where = ".".join(str(p) for p in error.absolute_path)
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        unknown = next(key for key in error.instance if key not in known)
        return f"{where}.{unknown}: no such key; {suggest(unknown, known)}".removeprefix(".")
    where = where or "configuration"
    if error.validator == "anyOf":
        # The user chose one of the forms: say what is wrong inside it, not that no form fits.
        inside = [e for e in error.context if e.validator != "type" or len(e.path)]
        if inside:
            return _message(inside[0])
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        return f"{where}: the key {missing!r} is missing"
    if error.validator == "enum":
        allowed = [str(value) for value in error.validator_value]
        return f"{where}: {error.instance!r} is not one of {', '.join(allowed)}"
    if error.validator == "pattern":
        allowed = error.schema.get("description", "A name here has small letters, digits and _ only.")
        return f"{where}: {error.instance!r} is not allowed. {allowed}"
    hint = hint_at_number(error.instance) if error.validator == "type" else ""
    return f"{where}: {error.message}{hint}"


def check_known(name: str, known: Collection[str], where: str, what: str) -> None:
    """Check that a name is one of the known ones.

    Args:
        name: The name to look for.
        known: The valid names.
        where: Path of the key, for the message.
        what: What the name names, for the message.

    Raises:
        UserError: If it is not known; the message suggests the nearest names.
    """
    if name not in known:
        raise UserError(f"{where}: no {what} {name!r}; {suggest(name, known)}")


def fill_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a configuration with the defaults of the schema, in every mapping the schema describes."""
    schema = read_schema()
    filled = _fill(copy.deepcopy(config), schema, schema["$defs"])
    for key, empty in EMPTY_VALUES.items():
        filled.setdefault(key, copy.deepcopy(empty))
    return filled


def _fill(value: Any, rule: dict[str, Any], definitions: dict[str, Any]) -> Any:
    """Fill the defaults of one rule of the schema into a value, in place."""
    if "$ref" in rule:
        rule = definitions[rule["$ref"].split("/")[-1]] | rule
    if not isinstance(value, dict):
        return value
    properties = rule.get("properties", {})
    for key, sub in properties.items():
        if key not in value and "default" in sub:
            value[key] = copy.deepcopy(sub["default"])
        elif key not in value and sub.get("type") == "object" and "properties" in sub and key != "methods":
            value[key] = {}
        if key in value:
            value[key] = _fill(value[key], sub, definitions)
    others = rule.get("additionalProperties")
    if isinstance(others, dict):
        for key in value:
            if key not in properties:
                value[key] = _fill(value[key], others, definitions)
    return value
