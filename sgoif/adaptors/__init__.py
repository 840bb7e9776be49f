"""Small modules on top of what training leaves behind: anchors, curvature, scores."""

from sgoif.adaptors.shift import Moments, ShiftConfig, ShiftSentinel, Trace, pooled

__all__ = ["Moments", "ShiftConfig", "ShiftSentinel", "Trace", "pooled"]
