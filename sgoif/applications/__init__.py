"""Small modules on top of what training leaves behind: anchors, curvature, scores. `examples/` runs each of them."""

from sgoif.applications.curriculum import Curriculum
from sgoif.applications.label_errors import Triage, triage
from sgoif.applications.poisoning import Poisoning, localise
from sgoif.applications.prediction_influence import support
from sgoif.applications.shift_detection import ShiftConfig, ShiftSentinel, Trace
from sgoif.applications.streaming_moments import Moments, pooled
from sgoif.applications.unlearning import Priority, prioritise

__all__ = [
    "Curriculum",
    "Moments",
    "Poisoning",
    "Priority",
    "ShiftConfig",
    "ShiftSentinel",
    "Trace",
    "Triage",
    "localise",
    "pooled",
    "prioritise",
    "support",
    "triage",
]
