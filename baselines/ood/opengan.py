"""OpenGAN (Kong & Ramanan, ICCV 2021): a discriminator of real against generated features is the open-set score.

On the frozen features z of the plain network:   min_G max_D  E log D(z) + E log(1 - D(G(noise)))       s(x) = 1 - D(z)

Both are fully connected (the paper's 1x1 convolutions) with batch norm; Adam, beta1 0.5, weights N(0, 0.02).
A discriminator that has won or lost its game says little about real outliers: expect a large variance over seeds
(OpenOOD reports +-15 points even where the epoch is chosen).

Paper: OpenGAN: Open-Set Recognition via Open Data Generation, ICCV 2021.
Code: https://github.com/aimerykong/OpenGAN; OpenOOD's `opengan`.
Settings: Adam 1e-4, beta1 0.5, noise of 100 numbers, batches of 128.
Deviations: the paper and OpenOOD choose the epoch on OOD validation images; here the last one counts.
Parity: tests/parity/test_ood_trained.py::test_opengan_shapes_and_which_way_each_player_pulls
Score: one minus the discriminator's probability of a real feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.batches import Batch
from sgoif.training.cuda_graphs import GraphedStep, uses_cuda_graphs
from sgoif.training.images import ImageSource
from sgoif.training.seeds import seeded_weights


def stack(widths: list[int], slope: float, norm_first: bool, bias_last: bool) -> nn.Sequential:
    """Linear layers, batch norm and (leaky) ReLU between them; weights N(0, 0.02), norms N(1, 0.02).

    Args:
        widths: Of the input and of every layer.
        slope: Of the leaky ReLU.
        norm_first: Whether the first layer has a batch norm.
        bias_last: Whether the last layer has a bias; no other has one.
    """
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(widths)):
        last = i == len(widths) - 2
        layers.append(nn.Linear(a, b, bias=last and bias_last))
        nn.init.normal_(layers[-1].weight, 0.0, 0.02)
        if not last and (i or norm_first):
            layers.append(nn.BatchNorm1d(b))
            nn.init.normal_(layers[-1].weight, 1.0, 0.02)
        if not last:
            layers.append(nn.LeakyReLU(slope))
    return nn.Sequential(*layers)


class FeatureGAN(nn.Module):
    def __init__(self, width: int, noise: int):
        super().__init__()
        # slope 0 is plain ReLU
        self.generator = stack([noise, 512, 256, 128, 256, width], 0.0, norm_first=True, bias_last=True)
        self.discriminator = stack([width, 512, 256, 128, 64, 1], 0.2, norm_first=False, bias_last=False)

    def logit(self, z: Tensor) -> Tensor:
        """log D / (1 - D), [n]."""
        return self.discriminator(z).squeeze(1)

    def discriminator_loss(self, real: Tensor, fake: Tensor) -> Tensor:
        return F.softplus(-self.logit(real)).mean() + F.softplus(self.logit(fake.detach())).mean()

    def generator_loss(self, fake: Tensor) -> Tensor:
        return F.softplus(-self.logit(fake)).mean()


class OpenGAN(OODDetector):
    name = "opengan"
    title = "OpenGAN"
    group = "Generative (so called)"
    order = 5

    @dataclass(frozen=True)
    class Params:
        lr: float = 1e-4  # of the generator; the discriminator's is lr / 1.5
        noise: int = 100
        batch_size: int = 128
        share: float = 1.0  # length of training, of the recipe's epochs
        min_steps: int = 150

    def __init__(self, **params):
        super().__init__(**params)
        for key in ("lr", "share"):
            self.need(getattr(self.params, key) > 0, key, "must be above 0")
        self.need(self.params.noise >= 1, "noise", "at least 1")
        self.need(self.params.min_steps >= 0, "min_steps", "must not be negative")
        self.need(self.params.batch_size >= 2, "batch_size", "at least 2, for the batch norm")

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        p, z = self.params, task.plain.features
        with seeded_weights(task.seed):
            self.gan = FeatureGAN(z.shape[1], p.noise).to(z.device)
        graph = uses_cuda_graphs(task.recipe, z.device)
        adam = {"betas": (0.5, 0.999), "capturable": graph}
        generator = torch.optim.Adam(self.gan.generator.parameters(), lr=p.lr, **adam)
        discriminator = torch.optim.Adam(self.gan.discriminator.parameters(), lr=p.lr / 1.5, **adam)
        size = min(p.batch_size, len(z))
        steps = len(z) // size
        epochs = max(round(p.share * task.recipe.epochs), -(-p.min_steps // steps))
        self.gan.train()

        def turn(batch: Batch) -> None:
            """The discriminator first: the generator then plays against the new one."""
            fake = self.gan.generator(*batch.extra)
            self._step(discriminator, self.gan.discriminator_loss(z[batch.index], fake))
            self._step(generator, self.gan.generator_loss(fake))

        step = GraphedStep(turn) if graph else turn
        for _ in task.session.epochs(epochs, self.gan, generator, discriminator, phase="gan"):
            order = torch.randperm(len(z)).to(z.device)
            for index in order[: steps * size].split(size):
                step(Batch(task.train, index, task.labels[index]).with_extra(torch.randn(size, p.noise)))
        self.gan.eval()

    @staticmethod
    def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        optimizer.step()

    @torch.no_grad()
    def score(self, images: ImageSource) -> Tensor:
        _, z = self.task.predict(self.net, images, features=True)
        return torch.sigmoid(-self.gan.logit(z))  # 1 - D without rounding at D near 1
