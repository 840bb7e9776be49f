"""What heads that have not seen an example say about its label, for all examples of a training on features."""

from __future__ import annotations

import warnings
from dataclasses import replace

from sgoif.features.head import HeadTraining
from sgoif.label_noise.evidence import SignalWeights
from sgoif.label_noise.held_out_evidence import fitted_examples, read_held_out_heads
from sgoif.result import InfluenceResult

SCATTERED_WEIGHT = 2.0  # of influence and margins at noise entropy 1; the log-odds have weight 1
SCATTERED_POWER = 3


def read_held_out(training: HeadTraining, result: InfluenceResult) -> InfluenceResult:
    """Return a result whose log-odds come from heads that have not seen the example.

    With too many classes (`fitted_examples`), or with trusted examples, the result is returned as it is.

    Args:
        training: The training of a head, at its end.
        result: Its scores of the N examples.

    Returns:
        The result with other log-odds, noise matrix, noise entropy and weights of the signals.
    """
    n_classes = training.head.out_features
    if result.config.source == "trusted":
        return result
    if not fitted_examples(len(training.labels), training.head.in_features, n_classes):
        warnings.warn(
            f"{n_classes} classes are too many for heads that have not seen an example: probabilities and the number "
            "of wrong labels come from the trained head alone, and the number may be far too high",
            stacklevel=4,
        )
        return result
    found = read_held_out_heads(training, training.labels, n_classes, training.recipe.seed)
    scattered = SCATTERED_WEIGHT * found.noise_entropy**SCATTERED_POWER
    return replace(
        result,
        log_odds=found.log_odds,
        transition=found.transition,
        noise_entropy=found.noise_entropy,
        weights=SignalWeights(scattered, 1.0, scattered),
    )
