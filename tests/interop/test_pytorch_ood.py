"""Detectors of pytorch-ood that the zoo does not have, wrapped as baselines and held to the OOD contract."""

from dataclasses import replace

import pytest
import torch
from sklearn.metrics import roc_auc_score

from sgoif.bench.methods import registry
from sgoif.interop.pytorch_ood import PytorchOOD
from tests.helpers.digit_tasks import RECIPE, ood_task


class RMD(PytorchOOD):
    """Relative Mahalanobis distance: reads features and has to be fitted."""

    name, title = "rmd", "RMD"

    def build(self, net):
        from pytorch_ood.detector import RMD

        return RMD(net.features)


class Entropy(PytorchOOD):
    """Entropy of the predictions: reads logits, nothing to fit."""

    name, title = "entropy", "Entropy"

    def build(self, net):
        from pytorch_ood.detector import Entropy

        return Entropy(net)


@pytest.mark.parametrize("kind", [RMD, Entropy])
def test_wrapped_detector_keeps_the_contract(kind):
    assert kind.name not in registry.available("ood"), "use one that is not in the zoo"
    task, id_test, ood = ood_task(recipe=replace(RECIPE, epochs=4))
    method, again = kind(), kind()
    method.fit(task)
    again.fit(task)
    inside, outside = method.score(id_test), method.score(ood["far"])
    assert inside.shape == (len(id_test),) and not inside.requires_grad
    torch.testing.assert_close(again.score(id_test), inside, rtol=0, atol=0)
    torch.testing.assert_close(method.score(id_test.subset(range(7))), inside[:7], rtol=1e-3, atol=1e-4)
    truth = torch.cat([torch.zeros(len(inside)), torch.ones(len(outside))])
    assert roc_auc_score(truth, torch.cat([inside, outside])) > 0.8, "higher must mean more out-of-distribution"


def test_scores_are_those_of_the_library():
    from pytorch_ood.detector import Entropy as Library

    task, id_test, _ = ood_task(recipe=replace(RECIPE, epochs=4))
    method = Entropy()
    method.fit(task)
    direct = Library(None).predict_logits(method.logits(id_test))
    torch.testing.assert_close(method.score(id_test), direct, rtol=1e-4, atol=1e-5)
