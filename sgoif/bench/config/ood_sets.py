"""The other datasets that an ID dataset of OOD detection is judged with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sgoif.bench.config.schema import check_known
from sgoif.bench.config.types import OodSpec, ResolvedConfig
from sgoif.bench.data import catalogue
from sgoif.bench.methods import registry
from sgoif.bench.methods.registry import SHARED
from sgoif.errors import UserError


def other_sets(spec: Mapping[str, Any]) -> list[str]:
    """Return the datasets whose images an OOD method reads beside those of the ID dataset, each once.

    Args:
        spec: The configuration of the ID dataset; one of noisy labels reads none.
    """
    validation = spec.get("validation") or {}
    names = [*spec.get("near", []), *spec.get("far", []), spec.get("auxiliary"), validation.get("set")]
    return list(dict.fromkeys(name for name in names if name))


def check_ood_sets(dataset: str, spec: OodSpec, config: ResolvedConfig) -> None:
    """Check that the other datasets exist and are disjoint where they must be, and that no method lacks one.

    Validation images may be of a test set, because those are not tested on, or auxiliary, because no method that
    searches its hyper-parameters trains on these.

    Raises:
        UserError: If a dataset is unknown, has two roles that exclude each other, or is missing for a method.
    """
    where = f"ood.{dataset}"
    roles = [*((f"{where}.near", name) for name in spec["near"]), *((f"{where}.far", name) for name in spec["far"])]
    auxiliary, validation = spec.get("auxiliary"), spec.get("validation")
    if auxiliary is not None:
        roles.append((f"{where}.auxiliary", auxiliary))
    seen: dict[str, str] = {}
    for role, name in roles:
        _check_set(name, role, dataset)
        if name in seen:
            raise UserError(f"{role}: {name} is also in {seen[name]}; test sets and auxiliary images must be disjoint")
        seen[name] = role
    if validation is not None:
        _check_set(validation["set"], f"{where}.validation.set", dataset)
    for method in spec["methods"]:
        name, variant = registry.split_variant(method)
        params = {**config["params"].get(name, {}), **config["variants"].get(name, {}).get(variant, {})}
        if validation is None and params.get("search"):
            raise UserError(
                f"{where}.methods: {method} searches its hyper-parameters on OOD validation images; say which by "
                f"{where}.validation, or leave it out"
            )
        if auxiliary is None and name not in SHARED and registry.declaration("ood", name).uses_auxiliary:
            raise UserError(
                f"{where}.methods: {method} trains on unlabelled images of other classes; say which by "
                f"{where}.auxiliary, or leave it out"
            )


def _check_set(name: str, role: str, dataset: str) -> None:
    """Check that a dataset exists and is not the ID dataset itself."""
    check_known(name, catalogue.DATASETS, role, "dataset")
    if name == dataset:
        raise UserError(f"{role}: {dataset} is the ID dataset itself")
