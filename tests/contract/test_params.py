"""Hyper-parameters: the defaults are the published ones, and every bound is where the message says it is.

A changed default changes every number of its method, so it is changed here too, with its reason beside it in the
method's file.
"""

import itertools
import math
from dataclasses import fields

import pytest

from sgoif.bench.methods import registry
from sgoif.errors import UserError

ANY = "(-inf, inf)"
SHARE = "(0, 1]"  # above 0, at most 1
INSIDE = "(0, 1)"
POSITIVE = "(0, inf)"
NOT_NEGATIVE = "[0, inf)"
FROM_1, FROM_2 = "[1, inf)", "[2, inf)"

PARAMS = {  # method: parameter: its default, and the interval or the names it may take
    "noisy": {
        "aum": {"window": (0.5, SHARE)},
        "mean_loss": {"window": (0.5, SHARE)},
        "confident_learning": {
            "prune": (
                "prune_by_noise_rate",
                ("argmax", "confident", "prune_by_class", "prune_by_noise_rate", "both"),
            )
        },
        "coteaching": {"noise_rate": (None, "[0, 1)"), "ramp": (0.3, SHARE), "warmup": (0.25, INSIDE)},
        "fastif": {
            "k": (1000, FROM_1),
            "n_anchors": (100, FROM_1),
            "damp": (5e-3, "[0, 1)"),
            "scale": (None, POSITIVE),
            "steps": (1000, FROM_1),
            "replicas": (1, FROM_1),
            "batch_size": (128, FROM_1),
        },
        "incv": {
            "iterations": (4, FROM_1),
            "fit": (50 / 200, SHARE),
            "least_steps": (32, FROM_1),
            "pattern": ("told", ("told", "symmetric", "asymmetric")),
            "ramp": (10 / 200, SHARE),
        },
        "mentornet": {
            "mentor": ("predefined", ("predefined", "data_driven")),
            "percentile": (0.7, INSIDE),
            "decay": (0.5, "[0, 1)"),
            "gamma": (1.0, POSITIVE),
            "flips": (0.4, INSIDE),
            "mentor_steps": (500, FROM_1),
        },
        "mixup": {"alpha": (1.0, NOT_NEGATIVE)},
        "sce": {
            "alpha": (None, NOT_NEGATIVE),
            "beta": (1.0, NOT_NEGATIVE),
            "log_zero": (math.log(1e-4), "(-inf, 0)"),
            "clip": (5.0, POSITIVE),
            "normalised": (True, ANY),
            "retrain": (False, ANY),
        },
        "cores": {"beta": (2.0, NOT_NEGATIVE)},
        "dividemix": {
            "alpha": (4.0, POSITIVE),
            "temperature": (0.5, POSITIVE),
            "threshold": (0.5, INSIDE),
            "weight": (None, NOT_NEGATIVE),
            "warmup": (0.25, INSIDE),
            "pattern": ("told", ("told", "symmetric", "asymmetric")),
        },
        "ekfac": {"damping": (0.1, POSITIVE)},
        "simifeat": {"k": (10, FROM_1)},
        "trusted_probe": {"strength": (1.0, POSITIVE)},
        "elr": {"weight": (None, NOT_NEGATIVE), "decay": (None, "[0, 1)")},
        "gce": {"q": (0.7, SHARE)},
        "sop": {"rate_u": (None, POSITIVE), "rate_v": (10.0, POSITIVE)},
        "tracin": {"layers": ("head", ("head", "all")), "chunk": (32, FROM_1)},
    },
    "ood": {
        "arpl": {
            "weight": (0.1, NOT_NEGATIVE),
            "margin": (1.0, ANY),
            "temperature": (1.0, POSITIVE),
            "weight_decay": (1e-4, NOT_NEGATIVE),
        },
        "csi": {
            "temperature": (0.07, POSITIVE),
            "projection": (128, FROM_1),
            "crop": (0.08, SHARE),
            "weight_decay": (1e-6, NOT_NEGATIVE),
            "batch_share": (0.5, SHARE),
        },
        "cutpaste": {
            "epochs": (1.0, POSITIVE),
            "lr": (0.03, POSITIVE),
            "weight_decay": (5e-4, NOT_NEGATIVE),
            "depth": (8, NOT_NEGATIVE),
            "area": ((0.02, 0.15), ANY),
            "aspect": ((0.3, 3.33), ANY),
        },
        "dice": {"percentile": (90.0, "[0, 100)")},
        "draem": {
            "epochs": (1.0, POSITIVE),
            "width": (None, FROM_1),
            "lr": (3e-3, POSITIVE),
            "steps": (250, FROM_1),
            "opacity": (0.8, "[0, 1]"),
        },
        "ebo": {"temperature": (1.0, POSITIVE)},
        "godin": {"epsilon": (0.0025, NOT_NEGATIVE)},
        "gradnorm": {"temperature": (1.0, POSITIVE)},
        "gram": {"powers": ((1, 2, 3, 4, 5), ANY), "held_out": (0.1, INSIDE)},
        "knn": {"k": (None, FROM_1)},
        "logitnorm": {"tau": (0.04, POSITIVE), "clip": (1.0, POSITIVE)},
        "mos": {
            "n_groups": (None, FROM_2),
            "lr": (0.003, POSITIVE),
            "share": (0.3, NOT_NEGATIVE),
            "min_steps": (200, NOT_NEGATIVE),
            "batch_size": (128, FROM_2),
            "mixup": (0.1, NOT_NEGATIVE),
        },
        "opengan": {
            "lr": (1e-4, POSITIVE),
            "noise": (100, FROM_1),
            "batch_size": (128, FROM_2),
            "share": (1.0, POSITIVE),
            "min_steps": (150, NOT_NEGATIVE),
        },
        "patchcore": {
            "coreset": (0.01, SHARE),
            "minimum": (500, FROM_1),
            "maximum": (10_000, FROM_1),
            "pool": (100_000, FROM_1),
            "projection": (128, FROM_1),
            "neighbours": (9, FROM_2),
        },
        "pixmix": {
            "pictures": (2000, FROM_1),
            "k": (4, NOT_NEGATIVE),
            "beta": (3.0, POSITIVE),
            "severity": (3.0, "[0.1, inf)"),
        },
        "react": {"percentile": (90.0, "(0, 100]")},
        "udg": {
            "clusters": (1000, FROM_1),
            "purity": (0.8, INSIDE),
            "heavy": (1.0, NOT_NEGATIVE),
            "outlier": (0.5, NOT_NEGATIVE),
            "auxiliary": (0.1, NOT_NEGATIVE),
            "ratio": (2, FROM_1),
        },
        "t2fnorm": {"tau": (0.1, POSITIVE)},
        "vim": {"dim": (None, FROM_1)},
        "vos": {
            "queue": (1000, FROM_2),
            "candidates": (10_000, ANY),
            "keep": (1, "[1, 10000]"),
            "weight": (0.1, NOT_NEGATIVE),
            "start": (0.4, "[0, 1]"),
            "weighted": (False, ANY),
        },
        "gen": {"gamma": (0.1, POSITIVE), "largest": (100, FROM_1)},
        "odin": {"temperature": (1000.0, POSITIVE), "epsilon": (0.0014, NOT_NEGATIVE)},
        "mds_ensemble": {"epsilon": (0.0014, NOT_NEGATIVE)},
        "ash": {"form": ("B", ("P", "B", "S")), "percentile": (90.0, "[0, 100)")},
        "scale": {"percentile": (85.0, "[0, 100)")},
        "nnguide": {"k": (100, FROM_1), "share": (0.01, SHARE), "minimum": (500, FROM_1)},
        "neco": {"variance": (0.9, SHARE), "max_logit": (False, ANY)},
        "relation": {"power": (1.0, POSITIVE), "threshold": (0.03, "[0, 1)")},
    },
}
METHODS = [(task, name) for task in PARAMS for name in PARAMS[task]]
CASES = [(task, name, param) for task, name in METHODS for param in PARAMS[task][name]]
WHOLE = {"width", "n_groups", "dim", "k"}  # whole numbers, or null by default


def edges(interval: str, whole: bool) -> tuple[list[float], list[float]]:
    """Return the numbers next to the ends of an interval: those inside it, and those outside."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    allowed, refused = [], []
    for end, closed, inwards in ((low, interval[0] == "[", 1), (high, interval[-1] == "]", -1)):
        if math.isinf(end):
            continue
        step = inwards * (1 if whole else max(abs(end), 1) * 1e-6)
        allowed.append(end if closed else end + step)
        refused.append(end - step if closed else end)
    return ([int(v) for v in allowed], [int(v) for v in refused]) if whole else (allowed, refused)


@pytest.mark.parametrize(("task", "name"), METHODS)
def test_the_defaults_are_the_published_ones(task, name):
    found = {field.name: field.default for field in fields(registry.load(task, name).Params)}
    assert found == {param: default for param, (default, _) in PARAMS[task][name].items()}


@pytest.mark.parametrize(("task", "name", "param"), CASES)
def test_bounds_are_where_the_message_says(task, name, param):
    kind, (default, values) = registry.load(task, name), PARAMS[task][name][param]
    if isinstance(values, tuple):
        allowed, refused = list(values), ["nonsense"]
    else:
        allowed, refused = edges(values, isinstance(default, int) or param in WHOLE)
    for value in allowed:
        assert getattr(kind(**{param: value}).params, param) == value
    for value in refused:
        with pytest.raises(UserError, match=f"{name}\\.{param}: .*{value}"):
            kind(**{param: value})


@pytest.mark.parametrize(("task", "name"), METHODS)
def test_a_value_of_another_type_is_named(task, name):
    kind = registry.load(task, name)
    for param in PARAMS[task][name]:
        with pytest.raises(UserError, match=rf"{name}\.{param}: must be .*, not {{}}"):
            kind(**{param: {}})


@pytest.mark.parametrize(
    ("name", "param", "allowed", "refused"),
    [
        ("cutpaste", "area", [(0.1, 0.1), (0.5, 1.0)], [(0.0, 0.1), (0.2, 0.1), (0.5, 1.001)]),
        ("cutpaste", "aspect", [(2.0, 2.0), (0.5, 7.0)], [(0.0, 1.0), (2.0, 1.9)]),
        ("gram", "powers", [(1,), (1, 9)], [(), (0, 1)]),
    ],
)
def test_bounds_of_pairs_and_lists(name, param, allowed, refused):
    kind = registry.load("ood", name)
    for value in allowed:
        assert getattr(kind(**{param: value}).params, param) == value
    for value in refused:
        with pytest.raises(UserError, match=f"{name}\\.{param}"):
            kind(**{param: value})


def test_rows_of_a_group_have_an_order():
    for task in PARAMS:
        rows = [registry.declaration(task, name) for name in registry.available(task)]
        for group, members in itertools.groupby(sorted(rows, key=lambda row: row.group), lambda row: row.group):
            orders = [row.order for row in members]
            assert len(set(orders)) == len(orders), f"two methods of '{group}' claim the same place"
