"""Defines what a method may see of the benchmark and how it trains on it: `NoisyTask` and `OODTask`.

No true training label, no test label and no image of an OOD test set is among it.

Shapes: N training images, M test images, K classes, d features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from sgoif.bench.methods.plain_run import PlainRun
from sgoif.errors import UserError
from sgoif.training.batches import Batches
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner
from sgoif.training.models import Network
from sgoif.training.predict import predict
from sgoif.training.recipe import Recipe
from sgoif.training.session import Session

Indices = Sequence[int] | np.ndarray | Tensor  # positions in a set of images, shape [n]


@dataclass(kw_only=True)
class Task:
    """What methods of both tasks may see, and how they train on it.

    Attributes:
        train: Training images.
        labels: Labels of the training images, shape [N], on the device. In noisy-label tasks some are wrong.
        n_classes: Number of classes K.
        seed: Seed of everything random in the method.
        recipe: Network, optimiser, epochs and augmentation of ordinary training.
        session: Timers, checkpoints and the epoch loop that survives being killed.
        plain: The finished plain run of the same setting and seed, for methods with `reads_plain`.
    """

    train: ImageSource
    labels: Tensor
    n_classes: int
    seed: int
    recipe: Recipe
    session: Session
    plain: PlainRun | None = None

    def batches(
        self,
        indices: Indices | None = None,
        seed: int | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> Batches:
        """Return training minibatches with the recipe's augmentation.

        Args:
            indices: Positions in the training set that are used, shape [n]; default all.
            seed: Seed of order and augmentation; default the task's.
            batch_size: Default the recipe's.
            **options: Further options of `Batches`; `shift` and `flip` replace the recipe's.
        """
        recipe = self.recipe
        seed = self.seed if seed is None else seed
        options = {"shift": recipe.shift, "flip": recipe.flip, **options}
        return Batches(self.train, self.labels, batch_size or recipe.batch_size, seed, indices, **options)

    def learner(
        self,
        batches: Batches,
        seed: int | None = None,
        epochs: int | None = None,
        sizes_vary: bool = False,
        **changes: Any,
    ) -> Learner:
        """Return a fresh network with its optimiser.

        Args:
            batches: What it will be trained on; sets the length of the learning-rate schedule.
            seed: Seed of the initial weights; default the task's.
            epochs: Default the recipe's.
            sizes_vary: Whether it is called with batches of several sizes.
            **changes: Fields of the recipe that are replaced.
        """
        recipe = replace(self.recipe, **changes) if changes else self.recipe
        start = self.seed if seed is None else seed
        return Learner.for_batches(recipe, self.n_classes, batches, start, epochs, sizes_vary=sizes_vary)

    @property
    def precision(self) -> str:
        """Arithmetic of predictions on a GPU: that of training."""
        return self.recipe.precision

    def predict(
        self,
        net: Network,
        images: ImageSource | None = None,
        indices: Indices | None = None,
        features: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Pass images through a network in eval mode, without augmentation, in the task's precision.

        Args:
            net: The network.
            images: Default the training images.
            indices: Positions in `images`, shape [n]; default all.
            features: Whether penultimate features are returned too.

        Returns:
            Logits, shape [n, K], and features, shape [n, d], or None.
        """
        images = self.train if images is None else images
        return predict(net, images, indices, precision=self.precision, features=features)


@dataclass(frozen=True)
class NoiseFacts:
    """What the experimenter knows about the noise of a setting, and some published methods ask to be told.

    Attributes:
        rate: Share of wrong labels, by the specification of the noise or as published for human labels.
        pattern: "symmetric" if wrong labels go to all other classes alike, else "asymmetric".
    """

    rate: float
    pattern: str


@dataclass(kw_only=True)
class NoisyTask(Task):
    """What a noisy-label method may see. No true training label and no test label is among it.

    Attributes:
        test: Test images without labels, which belong to the evaluation.
        trusted: A few images and their clean labels, shape [V], for methods with `uses_trusted`.
        folds: Out-of-fold probabilities, shape [N, K], for methods with `reads_folds`.
        noise: Rate and pattern of the noise, for methods with `told_noise`.
    """

    test: ImageSource
    trusted: tuple[ImageSource, Tensor] | None = None
    folds: np.ndarray | None = None
    noise: NoiseFacts | None = None

    def noise_facts(self, method: str) -> NoiseFacts:
        """Return what is told about the noise.

        Args:
            method: Name of the method that asks, for the message.

        Raises:
            UserError: If nothing is told, because the rate of the setting's noise is not known.
        """
        if self.noise is None:
            raise UserError(
                f"{method} asks for the noise rate, and that of this setting is not known; leave it out there"
            )
        return self.noise


@dataclass(kw_only=True)
class OODTask(Task):
    """What an OOD method may see: labelled ID images and perhaps auxiliary ones, but no image of an OOD test set.

    Attributes:
        val: ID validation images.
        auxiliary: Unlabelled images, disjoint from every OOD test set, for methods with `uses_auxiliary`.
        ood_val: OOD validation images, none of which is tested on, for methods that search their hyper-parameters.
    """

    val: ImageSource
    auxiliary: ImageSource | None = None
    ood_val: ImageSource | None = None

    @property
    def precision(self) -> str:
        """Arithmetic of predictions: float32, since OOD scores are sensitive to rounding."""
        return "float32"
