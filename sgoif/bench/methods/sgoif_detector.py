"""The training run that SG-OIF watches, under the contract of noisy-label methods. Its methods differ in where their
anchors come from."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F

from sgoif.anchors.external import AnchorData
from sgoif.bench.methods.base import Detection, NoisyLabelDetector, NoisyTask
from sgoif.check_history import CheckHistory
from sgoif.config import InfluenceConfig
from sgoif.errors import InfluenceError, UserError
from sgoif.influence import OnlineInfluence
from sgoif.training.batches import Batch
from sgoif.training.compute_counter import COMPUTE
from sgoif.training.learner import Learner


class SGOIFDetector(NoisyLabelDetector):
    """One ordinary training run, watched; examples are ranked by their suspicion."""

    distributes = True
    Params = InfluenceConfig
    source: ClassVar[str] = "stream"  # of the anchors

    def __init__(self, **params):
        try:
            super().__init__(**{"source": self.source, **params})
        except InfluenceError as e:
            raise UserError(f"params.{self.name}: {e}") from None
        self.need(self.params.source == self.source, "source", f"is {self.source!r} in this method")

    def anchor_data(self, task: NoisyTask) -> AnchorData | None:
        """Examples outside the training set that are the anchors, where they are not streamed from it."""
        return None

    def detect(self, task: NoisyTask) -> Detection:
        batches = task.batches()
        learner = task.learner(batches)
        influence = OnlineInfluence(
            learner.net,
            n_examples=len(task.train),
            n_classes=task.n_classes,
            config=self.params,
            total_steps=learner.total_steps,
            anchor_data=self.anchor_data(task),
        )
        kind = self._head_step if self.params.scope == "head" else self._deep_step
        step, history = kind(learner, influence), CheckHistory(influence)
        for epoch in task.session.epochs(task.recipe.epochs, learner, influence, history):
            before = influence.external_anchor_passes
            for batch in batches.epoch(epoch):
                step(batch)
                influence.step(learner.optimizer)
                history.record()
            influence.end_epoch()
            COMPUTE.forward_passes += influence.external_anchor_passes - before
        result = influence.scores()
        if self.params.memory:
            COMPUTE.forward_passes += influence.external_anchors  # they name the latent classes
        issues = result.find_label_issues(task.labels)
        variants = {"influence": result.score, "latent": result.log_odds}
        return Detection(
            scores=result.suspicion.numpy(),
            variants={name: values.numpy() for name, values in variants.items() if values is not None},
            remove=issues.mask.numpy(),
            epoch_scores=result.epoch_scores.cpu().numpy(),
            traces=history.arrays(),
            extras={
                "estimated_noise": issues.count / len(task.train),
                "mean_confidence": result.confidence.mean(),
                "mean_residual": result.residual.mean(),
                "latent_trust": result.latent_weight,
                "latent_scatter": result.noise_entropy,
                **result.counters,
            },
        )

    @staticmethod
    def _head_step(learner: Learner, influence: OnlineInfluence):
        """The last layer's gradients follow from features and logits, so the step may be a CUDA graph."""

        def forward(batch: Batch):
            logits, features = learner.forward(batch.x)
            return F.cross_entropy(logits, batch.labels), logits, features

        run = learner.stepper(forward)

        def step(batch: Batch) -> None:
            _, logits, features = run(batch)
            influence.record_outputs(batch.index, batch.labels, features, logits)

        return step

    @staticmethod
    def _deep_step(learner: Learner, influence: OnlineInfluence):
        """Other scopes catch what flows through their layers in the same forward and backward pass. Hooks do not fire
        inside a compiled backbone, so the network is run as it is, whatever `recipe.compile` says; the whole step, with
        the scores it takes along, may still be a CUDA graph."""

        def forward(batch: Batch):
            with influence.capture_graph() as captured:
                logits = learner.forward_eager(batch.x)
            return F.cross_entropy(logits, batch.labels), captured

        run = learner.stepper(forward)

        def step(batch: Batch) -> None:
            _, captured = run(batch)
            influence.record_replay(batch.index, batch.labels, captured)

        return step
