"""Small modules on top of what training leaves behind: anchors, curvature, scores. `examples/` runs each of them."""

from sgoif.adaptors.curriculum import Curriculum
from sgoif.adaptors.label_errors import Triage, triage
from sgoif.adaptors.moments import Moments, pooled
from sgoif.adaptors.poisoning import Poisoning, localise
from sgoif.adaptors.shift import ShiftConfig, ShiftSentinel, Trace
from sgoif.adaptors.towards import support
from sgoif.adaptors.unlearning import Priority, prioritise

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
