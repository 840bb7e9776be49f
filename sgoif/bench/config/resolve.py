"""Reading, layering and checking configurations. A mistake is told with the key's path and the nearest valid names."""

import copy
import difflib
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sgoif.bench.data import catalogue
from sgoif.bench.data.availability import found
from sgoif.bench.data.noisy_labels import check_setting
from sgoif.bench.methods import registry
from sgoif.errors import UserError
from sgoif.utils.paths import ROOT

SCHEMA = Path(__file__).with_name("config.schema.json")


ROW = "run only in the settings of the tables that show it"


def load(path: Path | str, gaps: bool = True) -> dict[str, Any]:
    """The configuration file at `path`, layered over what it extends, checked and with defaults filled in."""
    return resolve(_read(Path(path)), Path(path).parent, gaps)


def _read(path: Path) -> dict[str, Any]:
    """The keys and values of one file, not yet checked."""
    import yaml

    try:
        raw = yaml.safe_load(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"no configuration file {path}") from None
    except (yaml.YAMLError, OSError, ValueError, RecursionError) as e:  # a folder, no UTF-8, a date that is none
        raise UserError(f"{path} is not valid YAML: {' '.join(str(e).split())[:300]}") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path}: a configuration is a mapping of keys to values")
    return raw


def resolve(config: dict[str, Any], folder: Path | str = ROOT / "configs", gaps: bool = True) -> dict[str, Any]:
    """Layers `extends`, checks everything, fills defaults and named recipes.

    `gaps`: datasets that are optional and not on this machine move to `not_run`, with what it takes to get them.
    """
    config = _plain(layer(config, Path(folder)))
    check_schema(config)
    config = fill_defaults(config)
    for task in ("noisy", "ood"):
        for name, spec in config[task].items():
            where = f"{task}.{name}"
            _known(name, catalogue.DATASETS, where, "dataset")
            spec["recipe"] = _recipe(spec["recipe"], config.get("recipes", {}), f"{where}.recipe")
            spec.setdefault("title", catalogue.DATASETS[name].title)
            chosen = spec.get("methods", config["methods"][task]) + spec.pop("extra_methods", [])
            spec["methods"] = list(dict.fromkeys(chosen))
            for method in spec["methods"] + spec.get("tuning_methods", []):
                _check_method(task, method, config, f"{where}.methods")
    _ask_for_rows(config)
    for task in ("noisy", "ood"):
        for name, spec in config[task].items():
            _check_restrict(spec, f"{task}.{name}")
    _check_params(config)
    for name, spec in config["noisy"].items():
        _check_noise(name, spec)
    for name, spec in config["ood"].items():
        for key in ("near", "far"):
            for other in spec[key]:
                _known(other, catalogue.DATASETS, f"ood.{name}.{key}", "dataset")
        aux = spec.get("auxiliary")
        if aux is not None:
            _known(aux, catalogue.DATASETS, f"ood.{name}.auxiliary", "dataset")
            if aux in spec["near"] + spec["far"]:
                raise UserError(f"ood.{name}.auxiliary: {aux} is also a test OOD set; it must be disjoint from them")
    if os.environ.get("SGOIF_DATA"):
        config["data"]["mirror"] = os.environ["SGOIF_DATA"]
    if gaps:
        _leave_gaps(config)
    return config


def _leave_gaps(config: dict[str, Any]) -> None:
    root, mirror = Path(config["data"]["root"]), config["data"]["mirror"]
    for task in ("noisy", "ood"):
        for name, spec in list(config[task].items()):
            if not spec["optional"]:
                continue
            wanted = [name, *spec.get("near", []), *spec.get("far", []), spec.get("auxiliary")]
            missing = [n for n in wanted if n and found(n, root, mirror).startswith("missing")]
            if missing:
                del config[task][name]
                reason = f"not on this machine: {', '.join(missing)}; `make doctor` says where to get and put it"
                gap = {"task": task, "dataset": name, "title": spec["title"], "reason": reason}
                config["not_run"] = [g for g in config["not_run"] if (g["task"], g["dataset"]) != (task, name)] + [gap]


def layer(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Lays `config` over the file it extends (mappings merge, `null` takes away, everything else
    replaces)."""
    layers = [copy.deepcopy(config)]
    seen = set()
    while (parent := layers[-1].pop("extends", None)) is not None:
        if not isinstance(parent, str) or not re.fullmatch(r"[a-z0-9_-]+\.yaml", parent):
            raise UserError(f"extends: {parent!r} is not the name of a configuration file in {folder}")
        if parent in seen:
            raise UserError(f"extends: {parent} extends itself")
        seen.add(parent)
        layers.append(_read(folder / parent))
    return functools.reduce(merge, reversed(layers))  # from the lowest: what is taken away is gone from all below


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration if JSON can express it: no dates, no infinities, nothing that contains itself."""
    try:
        return json.loads(json.dumps(config, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as e:
        raise UserError(f"configuration: a value is neither text, number, list nor mapping ({e})") from None


def check_resolved(config: Any, path: Path) -> None:
    """Refuses a resolved configuration that Snakemake did not write so."""
    try:
        check_schema(config)
        if fill_defaults(config) != config:
            raise UserError("defaults are missing")
    except UserError as e:
        raise UserError(f"{path}: {e}; delete it and run again: Snakemake writes it") from None


def _check_restrict(spec: dict[str, Any], where: str) -> None:
    """Methods, settings and seeds that `restrict` and `retrain` name are those of the dataset."""
    for method, share in spec.get("restrict", {}).items():
        _known(method, [*spec["methods"], "folds", "plain"], f"{where}.restrict", "method")
        _check_share(share, spec, f"{where}.restrict.{method}")
    if isinstance(spec.get("retrain"), list | dict):
        for method in spec["retrain"]:
            _known(method, spec["methods"], f"{where}.retrain", "method")
            if isinstance(spec["retrain"], dict):
                _check_share(spec["retrain"][method], spec, f"{where}.retrain.{method}")


def _check_share(share: dict[str, Any], spec: dict[str, Any], where: str) -> None:
    for setting in share.get("settings", []):
        _known(setting, spec.get("settings", {}), f"{where}.settings", "setting")
    for seed in share.get("seeds", []):
        _known(str(seed), [str(s) for s in spec["seeds"]], f"{where}.seeds", "seed")
    for number, more in enumerate(share.get("besides", [])):
        _check_share(more, spec, f"{where}.besides.{number}")


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        if value is None and key in below:
            del merged[key]
        else:
            merged[key] = merge(merged[key], value) if both else value
    return merged


def check_schema(config: dict[str, Any]) -> None:
    from jsonschema import Draft202012Validator

    errors = sorted(Draft202012Validator(schema()).iter_errors(config), key=lambda e: len(e.absolute_path))
    if errors:
        raise UserError(_tell(errors[0]))


def _tell(error) -> str:
    where = ".".join(str(p) for p in error.absolute_path) or "configuration"
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        unknown = next(k for k in error.instance if k not in known)
        return f"{'' if where == 'configuration' else where + '.'}{unknown}: no such key{nearest(unknown, known)}"
    if error.validator == "anyOf":  # what is wrong inside the form that was chosen, if it is one of them
        inside = [e for e in error.context if e.validator != "type" or len(e.path)]
        if inside:
            return _tell(inside[0])
    if error.validator == "required":
        missing = next(k for k in error.validator_value if k not in error.instance)
        return f"{where}: the key {missing!r} is missing"
    if error.validator == "enum":
        allowed = [str(v) for v in error.validator_value]
        return f"{where}: {error.instance!r} is not one of {', '.join(allowed)}{nearest(str(error.instance), allowed)}"
    return f"{where}: {error.message}"


def nearest(wrong: str, known) -> str:
    close = difflib.get_close_matches(wrong, list(known), n=3, cutoff=0.5)
    return f" (did you mean {' or '.join(close)}?)" if close else f"; there are: {', '.join(sorted(known))}"


def _known(name: str, known, where: str, what: str) -> None:
    if name not in known:
        raise UserError(f"{where}: no {what} {name!r}{nearest(name, known)}")


def schema() -> dict[str, Any]:
    return json.loads(SCHEMA.read_text())


def fill_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """Defaults of the schema, for every mapping it describes."""
    whole = schema()

    def fill(value, rule):
        rule = whole["$defs"][rule["$ref"].split("/")[-1]] | rule if "$ref" in rule else rule
        if not isinstance(value, dict):
            return value
        for key, sub in rule.get("properties", {}).items():
            if key not in value and "default" in sub:
                value[key] = copy.deepcopy(sub["default"])
            elif key not in value and sub.get("type") == "object" and "properties" in sub and key != "methods":
                value[key] = {}
            if key in value:
                value[key] = fill(value[key], sub)
        extra = rule.get("additionalProperties")
        if isinstance(extra, dict):
            for key in value:
                if key not in rule.get("properties", {}):
                    value[key] = fill(value[key], extra)
        return value

    config = fill(copy.deepcopy(config), whole)
    for key, empty in (("params", {}), ("variants", {}), ("tables", {}), ("not_run", [])):
        config.setdefault(key, empty)
    return config


def _recipe(spec: dict[str, Any], named: dict[str, Any], where: str) -> dict[str, Any]:
    spec = dict(spec)
    base = spec.pop("base", None)
    if base is not None:
        _known(base, named, f"{where}.base", "recipe")
        spec = merge(_recipe(named[base], named, f"recipes.{base}"), spec)
    return spec


def _check_method(task: str, method: str, config: dict[str, Any], where: str) -> None:
    name, _, variant = method.partition("@")
    _known(name, registry.available(task), where, "method")
    if variant:
        _known(variant, config["variants"].get(name, {}), f"{where} (variants.{name})", "variant")


def _ask_for_rows(config: dict[str, Any]) -> None:
    """A table that names its rows asks for them: what is not run anyway is run in the settings the table shows, and not
    retrained, since such tables show no test accuracy. Written down as `restrict` (unless that already says where such
    a row is run) and `retrain`."""
    for table, wanted in config["tables"].items():
        for method in wanted.get("methods", []):
            _check_method("noisy", method, config, f"tables.{table}.methods")
        dataset = wanted.get("dataset", "")
        settings = wanted.get("settings") or config["noisy"].get(dataset, {}).get("settings", {})
        single = [{"dataset": dataset, "setting": setting} for setting in settings]
        for chosen in wanted.get("sets", single) if "methods" in wanted else []:
            spec, setting = config["noisy"].get(chosen["dataset"]), chosen.get("setting", "")
            if spec is None or "gap" in chosen:
                continue
            _known(setting, spec["settings"], f"tables.{table} (noisy.{chosen['dataset']}.settings)", "setting")
            restrict = spec.setdefault("restrict", {})
            if spec["retrain"] is True:
                spec["retrain"] = list(spec["methods"])
            for method in wanted["methods"]:
                if method not in spec["methods"]:
                    spec["methods"].append(method)
                    restrict.setdefault(method, {"settings": [], "reason": ROW})
                share = restrict.get(method, {})
                if share.get("reason") == ROW and setting not in share["settings"]:
                    share["settings"].append(setting)


def _check_params(config: dict[str, Any]) -> None:
    """Hyper-parameters that differ from the defaults are tried on the method itself (which loads torch)."""
    wanted = [(name, values) for name, values in config["params"].items()]
    wanted += [(n, {**config["params"].get(n, {}), **v}) for n, vs in config["variants"].items() for v in vs.values()]
    for name, values in wanted:
        homes = [task for task in registry.TASKS if name in registry.available(task)]
        if not homes:
            _known(name, {m for task in registry.TASKS for m in registry.available(task)}, "params", "method")
        told = []
        for task in homes:
            try:
                registry.load(task, name)(**values)
            except (UserError, TypeError) as e:
                told.append(f"params.{name}: {e}" if isinstance(e, TypeError) else str(e))
        if len(told) == len(homes):  # a name in both tasks may mean either
            raise UserError(told[0])


def _check_noise(name: str, spec: dict[str, Any]) -> None:
    both = set(spec["settings"]) & set(spec.get("tuning", {}))
    if both:
        raise UserError(f"noisy.{name}: the setting {sorted(both)[0]!r} is both reported and used for tuning")
    for group in ("settings", "tuning"):
        for setting, noise in spec.get(group, {}).items():
            if setting in ("clean", "val"):
                raise UserError(f"noisy.{name}.{group}.{setting}: this name is reserved")
            check_setting(name, noise, where=f"noisy.{name}.{group}.{setting}")


def digest(value: Any) -> str:
    """Short hash of any JSON value, independent of key order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def walk(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All leaves of a configuration as (dotted path, value)."""
    if isinstance(config, dict) and config:
        for key, value in config.items():
            yield from walk(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, config
