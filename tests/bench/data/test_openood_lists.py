"""OpenOOD's lists: as many images as it publishes, and applied where a configuration asks for it."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from sgoif.bench.config import load_config
from sgoif.bench.data.openood_lists import kept_images
from sgoif.bench.execution.inputs import Inputs
from sgoif.bench.execution.plan import Plan
from sgoif.errors import UserError
from sgoif.utils.paths import ROOT
from tests.helpers.digit_tasks import ood_task


@pytest.mark.parametrize(
    ("name", "id_set", "n", "kept", "first"),
    [
        ("tinyimagenet", "cifar10", 10_000, 7_793, [0, 1, 3, 4]),  # val_2 is one of OpenOOD's validation images
        ("tinyimagenet", "cifar100", 10_000, 6_526, None),
        ("places365", "cifar10", 36_500, 35_195, None),
        ("places365", "cifar100", 36_500, 33_773, None),
    ],
)
def test_as_many_images_are_kept_as_openood_has(name, id_set, n, kept, first):
    found = kept_images(name, id_set, n)
    assert len(found) == kept and found[-1] < n and (np.diff(found) > 0).all()
    assert first is None or found[:4].tolist() == first


def test_a_stand_in_has_the_first_images_of_the_list():
    whole = kept_images("tinyimagenet", "cifar10", 10_000)
    assert np.array_equal(kept_images("tinyimagenet9k", "cifar10", 9_000), whole[whole < 9_000])


def test_sets_without_a_list_are_kept_whole_and_other_images_are_refused():
    assert kept_images("svhn", "cifar10", 26_032) is None and kept_images("tinyimagenet", "MNIST", 10_000) is None
    with pytest.raises(UserError, match=r"places365 has 36,499 images here and 36,500 in OpenOOD's list for cifar100"):
        kept_images("places365", "cifar100", 36_499)


@pytest.mark.parametrize("asked", [True, False])
def test_a_job_reads_the_kept_images_alone(monkeypatch, asked):
    _, images, _ = ood_task()
    monkeypatch.setattr("sgoif.bench.execution.inputs.kept_images", lambda *_: np.array([2, 5]))
    spec = {"near": ["a"], "far": [], "openood_lists": asked}
    job = SimpleNamespace(spec=spec, dataset="cifar10", _images=lambda *_: images)
    job._ood_set, job._divided = partial(Inputs._ood_set, job), partial(Inputs._divided, job)
    (found,) = Inputs.ood_sets(job).values()
    assert len(found) == (2 if asked else len(images))


def test_the_lists_are_part_of_what_a_cell_depends_on():
    config = load_config(ROOT / "configs" / "paper.yaml", skip_missing=False)
    plan = Plan(config)
    with_list = plan.cell_config(plan.batch("ood", "cifar10", "msp", 0)[0])
    assert with_list["openood_lists"] is True
    assert "openood_lists" not in plan.cell_config(plan.batch("ood", "cifar10", "plain", 0)[0])
    assert "openood_lists" not in plan.cell_config(plan.batch("ood", "MNIST", "msp", 0)[0])
