"""Check that the parts of a configuration fit together: methods, settings, seeds, noise, hyper-parameters.

The schema has checked the form of each value before. Every function raises a UserError that names the key by its path.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sgoif.bench.config.schema import check_known
from sgoif.bench.config.types import DatasetSpec, NoisySpec, ResolvedConfig, ShareSpec
from sgoif.bench.config.values import digest
from sgoif.bench.data import catalogue
from sgoif.bench.data.noise import label_file
from sgoif.bench.data.noisy_labels import check_setting
from sgoif.bench.methods import registry
from sgoif.errors import UserError

RESERVED_SETTINGS = ("clean", "val")  # names of files that every dataset has
# Folders of the system, with all that lies in them, and those that are no one's data folder themselves.
SYSTEM_FOLDERS = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr")
SHARED_FOLDERS = ("/", "/home", "/root", "/run", "/var", "/dev/shm", "~")
CHECKED_PARAMS = "SGOIF_CHECKED_PARAMS"  # environment variable: hyper-parameters that were checked already
RESERVED_RUNS = ("published",)  # folders in results that belong to no run


def check_method(task: str, method: str, config: ResolvedConfig, where: str) -> None:
    """Check that a method, and its variant if it names one, exist."""
    name, variant = registry.split_variant(method)
    check_known(name, registry.available(task), where, "method")
    if variant:
        check_known(variant, config["variants"].get(name, {}), f"{where} (variants.{name})", "variant")


def check_titles(task: str, methods: Iterable[str], where: str) -> None:
    """Check that no two methods have the same title, which would be two rows that nobody can tell apart."""
    found: dict[str, str] = {}
    for method in sorted({registry.split_variant(method)[0] for method in methods}):
        title = registry.declaration(task, method).title
        if title in found:
            raise UserError(f"{where}: {found[title]!r} and {method!r} have the same title, {title!r}; change one")
        found[title] = method


def check_run(name: str) -> None:
    """Check that a run's folder is its own."""
    if name in RESERVED_RUNS:
        raise UserError(f"run: {name!r} is reserved, results/{name} holds what is published; choose another name")


def check_data_root(root: str) -> None:
    """Check that prepared data would not be written among the system's, the user's or a run's own files."""
    if root.startswith("~"):
        raise UserError(f"data.root: {root!r} would be a folder called ~ here; write your home folder out")
    real = os.path.realpath(root)
    if real in {os.path.realpath(os.path.expanduser(folder)) for folder in SHARED_FOLDERS}:
        raise UserError(f"data.root: {root!r} holds other things than data; name a folder of its own inside it")
    inside = Path(real).parents
    for folder in map(Path, map(os.path.realpath, SYSTEM_FOLDERS)):
        if (folder == Path(real) or folder in inside) and Path("/dev/shm") not in inside:
            raise UserError(f"data.root: {root!r} lies in {folder}, a folder of the system; choose another")
    results = Path(os.path.realpath("results"))
    if results == Path(real) or results in inside:
        raise UserError(f"data.root: {root!r} lies in results, which `make clean` removes; choose another folder")


def check_val(dataset: str, spec: DatasetSpec, where: str) -> None:
    """Check that some test images remain when those for validation are set aside."""
    count = catalogue.DATASETS[dataset].parts.get("test")
    if count is not None and spec["val"] >= count:
        raise UserError(f"{where}: {spec['val']} of {count} test images cannot be set aside; some must remain")


def check_restrictions(spec: DatasetSpec, where: str, variants: Iterable[str] = ()) -> None:
    """Check that the methods, settings and seeds in `restrict`, `retrain` and `retrain_same` are those of the dataset.

    A limit for a method that this run leaves out has no effect: a file that extends another may name fewer methods.

    Args:
        spec: The dataset's part of the configuration.
        where: Its path in the configuration, for messages.
        variants: Names of all variants that the configuration declares, as `method@variant`.
    """
    known = {*registry.available(registry.task_kind(where.partition(".")[0])), *variants}
    left_out = known - set(spec["methods"])
    for method, share in spec.get("restrict", {}).items():
        if method in left_out:
            continue
        check_known(method, [*spec["methods"], *registry.SHARED], f"{where}.restrict", "method")
        _check_share(share, spec, f"{where}.restrict.{method}")
    for key in ("retrain", "retrain_same"):
        chosen: Any = spec.get(key)
        for method in (m for m in chosen if m not in left_out) if isinstance(chosen, list | dict) else ():
            check_known(method, spec["methods"], f"{where}.{key}", "method")
            if isinstance(chosen, dict):
                _check_share(chosen[method], spec, f"{where}.{key}.{method}")


def _check_share(share: ShareSpec, spec: DatasetSpec, where: str) -> None:
    settings: Any = spec.get("settings", {})
    for setting in share.get("settings", []):
        check_known(setting, settings, f"{where}.settings", "setting")
    for seed in share.get("seeds", []):
        check_known(str(seed), [str(s) for s in spec["seeds"]], f"{where}.seeds", "seed")
    for number, further in enumerate(share.get("besides", [])):
        _check_share(further, spec, f"{where}.besides.{number}")


def params_digest(config: Mapping[str, Any]) -> str:
    """Return the hash of the hyper-parameters that `check_params` checks; the value of `CHECKED_PARAMS`."""
    return digest([config["params"], config["variants"]])


def check_params(config: ResolvedConfig) -> None:
    """Check hyper-parameters that differ from the defaults by constructing the methods, which loads torch.

    A process that was started by one that has checked the same ones does not check them again.
    """
    params, variants = config["params"], config["variants"]
    if os.environ.get(CHECKED_PARAMS) == params_digest(config):
        return
    for name, values in params.items():
        _check_method_params(name, values)
    for name, changes in variants.items():
        for variant, values in changes.items():
            try:
                _check_method_params(name, {**params.get(name, {}), **values})
            except UserError as e:
                raise UserError(str(e).replace(f"params.{name}", f"variants.{name}.{variant}", 1)) from None


def _check_method_params(name: str, values: dict[str, Any]) -> None:
    """Construct a method with these hyper-parameters; of a method of both tasks, one success is enough."""
    tasks = [task for task in registry.TASKS if name in registry.available(task)]
    if not tasks:
        check_known(name, {m for task in registry.TASKS for m in registry.available(task)}, "params", "method")
    errors = []
    for task in tasks:
        try:
            registry.load(task, name)(**values)
        except UserError as e:
            errors.append(str(e))
        except TypeError as e:
            errors.append(f"params.{name}: {e}")
    if len(errors) == len(tasks):
        raise UserError(errors[0])


def check_noise(dataset: str, spec: NoisySpec) -> None:
    """Check the noise settings of a dataset: their names, and that each can be applied to it.

    Label files get their sha256 into the configuration, on which all that is computed depends.
    """
    where = f"noisy.{dataset}"
    both = set(spec["settings"]) & set(spec.get("tuning", {}))
    if both:
        raise UserError(f"{where}: the setting {sorted(both)[0]!r} is both reported and used for tuning")
    for group, settings in (("settings", spec["settings"]), ("tuning", spec.get("tuning", {}))):
        for setting, noise in settings.items():
            if setting in RESERVED_SETTINGS:
                raise UserError(f"{where}.{group}.{setting}: this name is reserved")
            check_setting(dataset, noise, where=f"{where}.{group}.{setting}")
            if noise["kind"] == "file":
                noise |= label_file.seal(noise, f"{where}.{group}.{setting}")


def check_recipes(config: ResolvedConfig) -> None:
    """Check what of the recipes depends on the dataset: shifts, and weights that training starts from."""
    for dataset, ood in config["ood"].items():
        if "start" in ood["recipe"]:
            raise UserError(f"ood.{dataset}.recipe.start: some OOD methods build networks of their own; leave it out")
        _check_shift(dataset, ood["recipe"], f"ood.{dataset}")
    for dataset, spec in config["noisy"].items():
        for group, settings in (("settings", spec["settings"]), ("tuning", spec.get("tuning", {}))):
            for setting, noise in settings.items():
                recipe, where = {**spec["recipe"], **noise.get("recipe", {})}, f"noisy.{dataset}.{group}.{setting}"
                _check_start(recipe, where)
                _check_shift(dataset, recipe, where)


def _check_shift(dataset: str, recipe: Mapping[str, Any], where: str) -> None:
    """Check that images are shifted by less than their size, as the border that shows then is their reflection."""
    shift, size = recipe.get("shift", 0), catalogue.get(dataset).image_size
    if shift >= size:
        raise UserError(f"{where}.recipe.shift: {shift} pixels, where images of {dataset} have {size}")


def _check_start(recipe: Mapping[str, Any], where: str) -> None:
    """Check where one setting's training starts, in its whole recipe."""
    if "start" not in recipe:
        return
    name, model = recipe["start"]["weights"], str(recipe.get("model"))
    known = {d.name: d.model for d in catalogue.DATASETS.values() if d.kind == "weights"}
    check_known(name, known, f"{where}.recipe.start.weights", "weights")
    if known[name] != model.partition("@")[0]:
        raise UserError(f"{where}.recipe.start.weights: {name} belongs to the model {known[name]}, not to {model}")
