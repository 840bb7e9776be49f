"""Gold loss correction. Hendrycks, Mazeika, Wilson & Gimpel, NeurIPS 2018 (arXiv:1802.05300).

A network trained on the noisy labels tells on trusted images how labels are corrupted; a second one is trained with
that knowledge:

    C[k] = mean of p(x; plain run) over the trusted images x of class k                            [K, K]
    loss = -log sum_k p_k(x) C[k, y]   of a training image,     -log p_y(x)   of a trusted one

Its prediction p(x) is of the clean label, so that the given label is wrong with probability

    `posterior`   s_i = 1 - p_y C[y, y] / sum_k p_k C[k, y]        with p of a pass after the last epoch

The other candidates are those of any robust trainer. Official code: github.com/mmazeika/glc (`CIFAR/train_ours.py`):
training and trusted images are shuffled into the same minibatches, and both networks start from the same weights.
Settings: none beyond the recipe.
Cost: a training beyond the plain run.
Deviations: a class without a trusted image has the row of the identity. Both trainings follow the recipe (published: 75
epochs of WRN-40-2 with a cosine). The trusted images are set aside from the test set, not taken from the training set.
Trusted and noisy images of a step pass the network together (released: apart, so that batch norm sees each alone).
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from sgoif.bench.methods.base import Detection
from sgoif.bench.methods.robust.loss_correction import LEAST, gold_training
from sgoif.bench.methods.robust.training import RobustTrainer, train_with
from sgoif.bench.methods.robust.visits import measure
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.training.batches import Batch
from sgoif.training.learner import Learner


def posterior(logits: Tensor, labels: Tensor, matrix: Tensor) -> Tensor:
    """Probabilities [n] that the labels [n] are wrong, by logits [n, K] of the clean labels."""
    p = logits.double().softmax(1)
    ways = p * matrix.double().T[labels]
    right = ways.gather(1, labels[:, None]).squeeze(1)
    return 1 - right / ways.sum(1).clamp(min=LEAST)


class GLC(RobustTrainer):
    name = "glc"
    title = "GLC †"
    group = "Given all clean labels that were set aside"
    order = 6
    ranked = False
    reads_plain = True
    uses_trusted = True
    candidates: ClassVar = {
        "posterior": "probability that the label is wrong, by prediction and corruption matrix",
        **RobustTrainer.candidates,
    }
    ranked_by = "window_margin"

    def detect(self, task: NoisyTask) -> Detection:
        training = gold_training(task, self.name)

        def forward(learner: Learner, batch: Batch) -> tuple[Tensor, Tensor]:
            logits = learner(batch.x)
            return training.loss(logits, batch.labels, batch.index), measure(logits, batch.labels)

        trained = train_with(task, forward, batches=training.batches)
        logits, _ = task.predict(trained.net)
        matrix = training.loss.matrix
        scores = {"posterior": posterior(logits, task.labels, matrix).cpu().numpy(), **trained.scores()}
        kept = float(matrix.diagonal().mean())
        return self.detection(
            scores, test_logits=trained.test_logits, extras={"mean_diagonal": kept}, curves=trained.curves
        )
