"""What scores, anchors and curvature are good for: one small module per application.

`triage` finds wrong labels, `localise` poisoned examples, `prioritise` what to unlearn, `Curriculum` reweights the
examples during training, `ShiftSentinel` detects inputs unlike the training data, `influence_on_predictions` gives the
influence of every training example on chosen predictions of a trained network together, and `PredictionInfluence` that
on each of them, while the network trains. All work on tensors in memory and write no files.
`examples/` runs each of them.
"""

from sgoif.applications.curriculum import Curriculum
from sgoif.applications.label_errors import Triage, triage
from sgoif.applications.poisoning import Poisoning, localise
from sgoif.applications.prediction_influence import influence_on_predictions
from sgoif.applications.shift_detection import Activations, ShiftConfig, ShiftSentinel
from sgoif.applications.streaming_moments import Moments, pooled
from sgoif.applications.target_influence import PredictionInfluence
from sgoif.applications.unlearning import Priority, prioritise

__all__ = [
    "Activations",
    "Curriculum",
    "Moments",
    "Poisoning",
    "PredictionInfluence",
    "Priority",
    "ShiftConfig",
    "ShiftSentinel",
    "Triage",
    "influence_on_predictions",
    "localise",
    "pooled",
    "prioritise",
    "triage",
]
