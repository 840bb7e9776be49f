"""ViM, virtual-logit matching (Wang, Li, Feng & Zhang, CVPR 2022).

o     = -W^+ b                                                     where all logits are equal to 0 as nearly as can be
R     = eigenvectors beyond the first D of the *uncentred* covariance of z - o over the training images
alpha = mean_train(max_k f_k) / mean_train ||R^T (z - o)||
s(x)  = alpha ||R^T (z - o)|| - log sum_k exp(f_k(x))

D follows the paper: 1000 for d >= 2048, 512 for d >= 768, else d/2 (256 for ResNet-18's 512).

Paper: ViM: Out-Of-Distribution with Virtual-logit Matching, CVPR 2022.
Code: https://github.com/haoqiwang/vim; OpenOOD's `vim`.
Settings: D by the paper's rule for the width of the features.
Deviations: D below 768 features is ours (half of them), as OpenOOD's 256 of ResNet-18's 512.
Parity: tests/parity/test_ood_posthoc.py::test_vim_and_eigenvectors
Score: the virtual logit less the energy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, features_and_logits, finite
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource


class ViM(OODDetector):
    name = "vim"
    title = "ViM"
    group = "Features"
    order = 1

    @dataclass(frozen=True)
    class Params:
        dim: int | None = None  # D, the principal space; None: the paper's rule

        def __post_init__(self):
            check_param(self.dim is None or self.dim >= 1, "vim.dim", "must be at least 1", self.dim)

    @staticmethod
    def principal_dim(width: int) -> int:
        """The paper's D for `width` features."""
        return 1000 if width >= 2048 else 512 if width >= 768 else max(width // 2, 1)

    @staticmethod
    def residual_space(features: Tensor, origin: Tensor, dim: int) -> Tensor:
        """[d, d - D] orthonormal; float64, since the small eigenvalues matter here."""
        centred = features.double() - origin.double()
        _, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))  # ascending
        return vectors[:, : max(vectors.shape[1] - dim, 0)].float()

    @staticmethod
    def virtual_logit(features: Tensor, origin: Tensor, space: Tensor) -> Tensor:
        return ((features - origin) @ space).norm(dim=1)

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        weight, bias = self.net.linear()
        features = finite(task.plain.features, "vim: training features")
        width = features.shape[1]
        dim = self.principal_dim(width) if self.params.dim is None else self.params.dim
        check_param(dim < width, "vim.dim", f"must be below the {width} features of the network", dim)
        self.origin = -(torch.linalg.pinv(weight) @ bias)
        self.space = self.residual_space(features, self.origin, dim)
        largest = (features @ weight.T + bias).amax(1).mean()
        residual = self.virtual_logit(features, self.origin, self.space).mean()
        self.alpha = float(largest / residual.clamp_min(1e-12))  # features that fill D dimensions leave no residual

    def score(self, images: ImageSource) -> Tensor:
        features, logits = features_and_logits(self.net, images, self.name)
        return self.alpha * self.virtual_logit(features, self.origin, self.space) - logits.logsumexp(1)

    def extras(self) -> dict[str, float]:
        return {"vim_dim": float(self.space.shape[0] - self.space.shape[1]), "vim_alpha": self.alpha}
