"""Which candidate ranks was chosen on tuning noise: the record of that choice is in benchmarks/measured."""

from __future__ import annotations

import json

import pytest

from benchmarks.candidates import means
from sgoif.bench.methods import registry
from sgoif.utils.paths import ROOT

RECORD = json.loads((ROOT / "benchmarks" / "measured" / "candidates-digits.json").read_text())
METHODS = [m for m in registry.available("noisy") if registry.declaration("noisy", m).candidates]


@pytest.mark.parametrize("name", METHODS)
def test_the_candidate_that_ranks_is_the_best_on_tuning_noise(name):
    """Of all that were declared; none may have been added or left out since."""
    declared, found = registry.declaration("noisy", name), means(RECORD["figures"][name])
    assert set(found) == set(declared.candidates)
    assert declared.ranked_by == max(found, key=found.__getitem__)


def test_no_setting_of_the_record_is_reported():
    settings = {s for by_candidate in RECORD["figures"].values() for found in by_candidate.values() for s in found}
    assert settings and all(setting.startswith("tune_") for setting in settings)
