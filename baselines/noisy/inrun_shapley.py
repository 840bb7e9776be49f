"""In-Run Data Shapley, first order. Wang, Mittal, Song & Jia, ICLR 2025 (arXiv:2406.11011).

What an example adds to each step of one training run, by its Shapley value for the change of the validation loss; to
first order that is the product of its gradient with the validation gradient, at the parameters of the step:

    phi_i = sum over the steps t that use i of  eta_t g_i(theta_t) . g_val(theta_t),        `all`: s_i = -phi_i

(the same for all examples of a batch, the share 1 / B, is left out). It is TracIn at every step instead of at
checkpoints, and the influence of SG-OIF with H = I. `window` sums the last half of training, `window_equal` without the
rates eta_t, `window_soft` besides for the loss at temperature 4, f / 4: at 1 the few trusted images that the network
gets wrong rule g_val. The validation gradient is of the trusted images, a random batch of them at each step. The
formula is the paper's. (The authors' GhostSuite has one validation batch for the run, and no rates.)

Removal rule: the suspicious component of a two-Gaussian mixture. Cost: 1 plain run and, at every step, a forward pass
of as many trusted images as a batch has.
Deviation: gradients of the last layer, as for TracIn; the trusted images pass in eval mode.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.robust.training import History
from sgoif.bench.methods.robust.visits import WINDOW, in_window
from sgoif.bench.methods.score_threshold import by_mixture
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.errors import UserError
from sgoif.training.batches import Batch
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.learner import Learner
from sgoif.training.seeds import numpy_generator

TEMPERATURE = 4.0  # of `window_soft`: SG-OIF's default


def head_products(logits: Tensor, z: Tensor, y: Tensor, v_logits: Tensor, v_z: Tensor, v_y: Tensor, c: float) -> Tensor:
    """[n] g_i . mean_v g_v in the last layer, c (W z + b)."""
    a, v_a = F.pad(z.float(), (0, 1), value=1.0), F.pad(v_z.float(), (0, 1), value=1.0)
    e, v_e = logits.softmax(1) - F.one_hot(y, logits.shape[1]), v_logits.softmax(1) - F.one_hot(v_y, logits.shape[1])
    return c**2 * (e @ (v_e.T @ v_a / len(v_y)) * a).sum(1)


@torch.no_grad()
def trusted_outputs(learner: Learner, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [m, K] and features [m, d] of trusted images in eval mode; the network goes on in training mode."""
    COMPUTE.forward_passes += len(x)
    learner.net.eval()
    with learner.forward_context():
        z = learner.net.features(x)
        logits = learner.net.classify(z).float()
    learner.net.train()
    return logits, z


class InRunShapley(NoisyLabelDetector):
    name = "inrun_shapley"
    title = "In-Run Data Shapley †"
    group = "Given all clean labels that were set aside"
    order = 5
    ranked = False
    uses_trusted = True
    candidates: ClassVar = {
        "all": "minus the sum of first-order values over all of training (published)",
        "window": "minus their sum over the last half of training",
        "window_equal": "minus the sum of gradient products over the last half, without learning rates",
        "window_soft": "the same for the loss at temperature 4",
    }
    ranked_by = "window_soft"

    def detect(self, task: NoisyTask) -> Detection:
        if task.trusted is None:
            raise UserError("inrun_shapley needs trusted images (noisy.<dataset>.val): it values by their loss")
        images, clean = task.trusted
        clean, epochs = clean.to(task.labels.device), task.recipe.epochs
        batches, history = task.batches(), History()
        learner = task.learner(batches)

        def forward(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
            (chosen,) = batch.extra
            v_logits, v_z = trusted_outputs(learner, images.batch(chosen))
            logits, z = learner.forward(batch.x)
            f, z, v_y, c = logits.detach(), z.detach(), clean[chosen], learner.net.scale
            products = [
                head_products(f / t, z, batch.labels, v_logits / t, v_z, v_y, c / t) for t in (1.0, TEMPERATURE)
            ]
            return F.cross_entropy(logits, batch.labels), *products

        step, size = learner.stepper(forward), min(batches.batch_size, len(clean))
        for epoch in task.session.epochs(epochs, learner, history):
            rng, n = numpy_generator(task.seed, "trusted", epoch), len(task.labels)
            plain, rated, soft = torch.zeros(3, n, device=task.labels.device)
            for batch in batches.epoch(epoch):
                rate = learner.lr
                batch.with_extra(torch.from_numpy(rng.permutation(len(clean))[:size]))
                _, products, soft_products = step(batch)
                plain.index_copy_(0, batch.index, products)
                rated.index_copy_(0, batch.index, rate * products)
                soft.index_copy_(0, batch.index, soft_products)
            history.add(plain=plain, rated=rated, soft=soft)
        late = np.array([in_window(epoch, epochs, WINDOW) for epoch in range(epochs)])
        found = {name: -history.stack(name).astype(np.float64) for name in ("plain", "rated", "soft")}
        scores = {
            "all": found["rated"].sum(0),
            "window": found["rated"][late].sum(0),
            "window_equal": found["plain"][late].sum(0),
            "window_soft": found["soft"][late].sum(0),
        }
        return self.detection(scores, remove=by_mixture)
