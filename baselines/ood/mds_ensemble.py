"""MDSEns, Mahalanobis distances of several layers, each after a step of the input (Lee et al., NeurIPS 2018).

For every stage l, with f_l(x) the mean over the pixels of the stage's output, and for the penultimate features unless
they are this mean of the last stage,

    d_l(x) = min_k (f_l(x) - m_lk)' S_l^-1 (f_l(x) - m_lk)         x~_l = x - eps sign(d d_l(x) / dx) / std
    s(x)   = sum_l a_l d_l(x~_l) / 2

m_lk and S_l are class means and shared covariance as in `mds`. A score costs a forward pass, and a backward and a
forward pass for every layer.

Paper: A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks, NeurIPS 2018.
Code: https://github.com/pokaxpoka/deep_Mahalanobis_detector; OpenOOD's `mds_ensemble`.
Settings: eps = 0.0014, OpenOOD's; a_l = 1 for every layer.
Deviations: the paper fits a_l, and chooses eps, on OOD or adversarial images; no OOD image is used here. OpenOOD's
    configuration reads the first layer only and divides the step by 0.5 for every dataset. The authors also read the
    output of the first convolution.
Parity: tests/parity/test_ood_posthoc_later.py::test_mds_ensemble
Score: the weighted sum of half squared distances.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.class_gaussians import ClassGaussians
from sgoif.bench.methods.ood.features import as_map, check_param, finite, pixel_step, stage_outputs
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.images import ImageSource


class MDSEnsemble(OODDetector):
    name = "mds_ensemble"
    title = "MDSEns"
    group = "Post hoc, not in the paper"
    order = 4

    @dataclass(frozen=True)
    class Params:
        epsilon: float = 0.0014

        def __post_init__(self):
            check_param(self.epsilon >= 0, "mds_ensemble.epsilon", "must not be negative", self.epsilon)

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        self.layers = self._layers(task.train)
        self.gaussians: list[ClassGaussians] = []
        for inner in stage_outputs(self.net, task.train, self.name, stages=self.layers):
            rows = [m.mean((2, 3)) for m in inner.maps]
            if not self.gaussians:
                self.gaussians = [ClassGaussians(task.n_classes, r.shape[1], r.device) for r in rows]
            for gaussians, r in zip(self.gaussians, rows, strict=True):
                gaussians.add(r, task.labels[inner.index])
        for gaussians in self.gaussians:
            gaussians.finish()

    def _layers(self, images: ImageSource) -> list[nn.Module]:
        """The stages and the whole backbone, unless its features are the mean of the last stage's output."""
        layers = [*self.net.stages, self.net.backbone]
        few = torch.arange(min(8, len(images)))
        first = next(stage_outputs(self.net, images, self.name, stages=layers, indices=few))
        stage, features = (m.mean((2, 3)) for m in first.maps[-2:])
        alike = stage.shape == features.shape and torch.allclose(stage, features, rtol=1e-3, atol=1e-5)
        return layers[:-1] if alike else layers

    def _distances(self, x: Tensor) -> list[Tensor]:
        """d_l(x) / 2 of every layer, [n] each, of one forward pass."""
        caught: list[Tensor] = []
        hooks = [m.register_forward_hook(lambda _m, _in, out: caught.append(out)) for m in self.layers]
        try:
            self.net(x)
        finally:
            for hook in hooks:
                hook.remove()
        rows = [finite(as_map(out).mean((2, 3)), "mds_ensemble: output of a stage") for out in caught]
        return [g.distances(r).amin(1) / 2 for g, r in zip(self.gaussians, rows, strict=True)]

    def after_steps(self, x: Tensor, step: Tensor) -> Tensor:
        """sum_l d_l(x~_l) / 2, [n]."""
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            before = self._distances(x)
            gradients = [torch.autograd.grad(d.sum(), x, retain_graph=True)[0] for d in before]
        with torch.no_grad():
            after = [self._distances(x - step * gradient.sign())[layer] for layer, gradient in enumerate(gradients)]
        return torch.stack(after).sum(0)

    def score(self, images: ImageSource) -> Tensor:
        step, scores = pixel_step(self.params.epsilon, images), []
        for index in torch.arange(len(images), device=images.device).split(256):
            scores.append(self.after_steps(images.batch(index), step))
            COMPUTE.forward_passes += len(index) * (1 + 3 * len(self.layers))  # a backward pass counts two
        return torch.cat(scores)
