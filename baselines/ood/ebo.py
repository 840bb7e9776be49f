"""EBO, energy-based OOD detection (Liu, Wang, Owens & Li, NeurIPS 2020).

    s(x) = -T log sum_k exp(f_k(x) / T)

Paper: Energy-based Out-of-distribution Detection, NeurIPS 2020.
Code: https://github.com/wetliu/energy_ood; OpenOOD's `ebo`.
Settings: T = 1, the paper's and OpenOOD's.
Deviations: none; the paper's fine-tuning with outliers is not run.
Parity: tests/parity/test_ood_posthoc.py::test_energy
Score: T = 1 ranks; with the sentinel's temperature it is declared beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sgoif.bench.methods.ood.features import check_param, finite
from sgoif.bench.methods.ood.softened import SoftenedDetector
from sgoif.training.images import ImageSource


class EBO(SoftenedDetector):
    name = "ebo"
    title = "EBO"
    group = "Energy and gradient"
    order = 1

    @dataclass(frozen=True)
    class Params:
        temperature: float = 1.0

        def __post_init__(self):
            check_param(self.temperature > 0, "ebo.temperature", "must be above 0", self.temperature)

    @staticmethod
    def from_logits(logits: Tensor, temperature: float = 1.0) -> Tensor:
        return -temperature * (logits / temperature).logsumexp(1)

    def scores(self, images: ImageSource) -> dict[str, Tensor]:
        logits = finite(self.logits(images), "ebo: logits of the network")
        return self.at_both(lambda t: self.from_logits(logits, t), logits.shape[1], self.params.temperature)
