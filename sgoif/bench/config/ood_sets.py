"""The other datasets that an ID dataset of OOD detection is judged with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sgoif.bench.config.schema import check_known
from sgoif.bench.config.types import OodSpec, ResolvedConfig
from sgoif.bench.data import catalogue
from sgoif.bench.methods import registry
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
    """Check that the other datasets exist and fit, and that methods which search have images to search on."""
    where = f"ood.{dataset}"
    for key in ("near", "far"):
        for name in spec[key]:
            check_known(name, catalogue.DATASETS, f"{where}.{key}", "dataset")
    auxiliary, validation = spec.get("auxiliary"), spec.get("validation")
    if auxiliary is not None:
        check_known(auxiliary, catalogue.DATASETS, f"{where}.auxiliary", "dataset")
        if auxiliary in spec["near"] + spec["far"]:
            raise UserError(f"{where}.auxiliary: {auxiliary} is also a test OOD set; it must be disjoint from them")
    if validation is not None:
        check_known(validation["set"], catalogue.DATASETS, f"{where}.validation.set", "dataset")
        if validation["set"] == dataset:
            raise UserError(f"{where}.validation.set: {dataset} is the ID dataset itself")
        return
    for method in spec["methods"]:
        name, variant = registry.split_variant(method)
        params = {**config["params"].get(name, {}), **config["variants"].get(name, {}).get(variant, {})}
        if params.get("search"):
            raise UserError(
                f"{where}.methods: {method} searches its hyper-parameters on OOD validation images; say which by "
                f"{where}.validation, or leave it out"
            )
