"""Attributions by other authors' packages: TRAK (`traker`) and EK-FAC (`kronfluence`). Both run on a CPU or a GPU."""

from __future__ import annotations

import logging
import math
import tempfile
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.fidelity.problem import AttributionProblem
from sgoif.errors import UserError

TRAK_DIMENSION = 128  # of the random projection
TRAK_REGULARISER = 0.0  # added to the projected features' second moment
EKFAC_DAMPING: float | None = 1e-8  # added to every eigenvalue; None: a tenth of their mean
EXAMPLES_AT_ONCE = 250  # of TRAK's gradients
IMAGES_AT_ONCE = 128  # of EK-FAC's gradients, convolutional networks


def _missing(package: str) -> UserError:
    return UserError(f"{package} is not installed; leave its row out of `methods`, or: pip install {package}")


def trak_effects(problem: AttributionProblem, model: nn.Module, dimension: int, regulariser: float) -> Tensor:
    """Return TRAK's scores as effects on the targets' losses, shape [M, N].

    TRAK scores the margin log p / (1 - p) of a target; the loss changes by -(1 - p) times as much, and effects are of
    leaving out.

    Raises:
        UserError: If the package is not installed.
    """
    try:
        from trak import TRAKer
        from trak.projectors import BasicProjector, ProjectionType
    except ImportError:
        raise _missing("traker") from None
    device = problem.x.device
    parameters = sum(p.numel() for p in model.parameters())
    projector = BasicProjector(parameters, dimension, problem.seed, ProjectionType.rademacher, device)
    model.eval()
    with tempfile.TemporaryDirectory() as folder:
        traker = TRAKer(
            model, "image_classification", problem.n, save_dir=folder, device=str(device), projector=projector,
            use_half_precision=False, logging_level=logging.ERROR, lambda_reg=regulariser,
        )  # fmt: skip
        traker.load_checkpoint(model.state_dict(), model_id=0)
        for x, y in zip(problem.x.split(EXAMPLES_AT_ONCE), problem.labels.split(EXAMPLES_AT_ONCE), strict=True):
            traker.featurize([x, y], num_samples=len(y))
        traker.finalize_features()
        count = len(problem.target_y)
        traker.start_scoring_checkpoint("targets", model.state_dict(), model_id=0, num_targets=count)
        traker.score([problem.target_x, problem.target_y], num_samples=count)
        scores = torch.as_tensor(traker.finalize_scores("targets")).T.float()
    with torch.no_grad():
        loss = F.cross_entropy(model(problem.target_x).float(), problem.target_y, reduction="none")
    return scores * -torch.expm1(-loss.cpu()).unsqueeze(1)


def ekfac_effects(problem: AttributionProblem, model: nn.Module, damping: float | None) -> Tensor:
    """Return kronfluence's pairwise influence on the targets' losses, shape [M, N].

    Raises:
        UserError: If the package is not installed.
    """
    try:
        from kronfluence.analyzer import Analyzer, prepare_model
        from kronfluence.arguments import ScoreArguments
        from kronfluence.task import Task
    except ImportError:
        raise _missing("kronfluence") from None

    class Classification(Task):  # type: ignore[misc]
        def compute_train_loss(self, batch: Any, model: nn.Module, sample: bool = False) -> Tensor:
            logits = model(batch[0])
            labels = torch.distributions.Categorical(logits=logits.detach()).sample() if sample else batch[1]
            return F.cross_entropy(logits, labels, reduction="sum")

        def compute_measurement(self, batch: Any, model: nn.Module) -> Tensor:
            return self.compute_train_loss(batch, model)

    torch.manual_seed(problem.seed)  # it draws labels from the network's predictions
    task, data = Classification(), torch.utils.data.TensorDataset(problem.x.cpu(), problem.labels.cpu())
    targets = torch.utils.data.TensorDataset(problem.target_x.cpu(), problem.target_y.cpu())
    size = IMAGES_AT_ONCE if problem.images else 2 ** math.ceil(math.log2(min(problem.n, 512)))
    model.eval()
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory() as folder:
            on_cpu = problem.x.device.type == "cpu"
            analyzer = Analyzer(
                "fidelity", prepare_model(model, task), task, output_dir=folder, disable_tqdm=True, cpu=on_cpu
            )
            analyzer.fit_all_factors("factors", data, per_device_batch_size=size)
            analyzer.compute_pairwise_scores(
                "scores", "factors", targets, data, per_device_query_batch_size=size, per_device_train_batch_size=size,
                score_args=ScoreArguments(damping_factor=damping),
            )  # fmt: skip
            scores: Tensor = analyzer.load_pairwise_scores("scores")["all_modules"]
    finally:
        logging.disable(level)
    return scores.float()
