"""SG-OIF: online influence scores with a certificate, in anyone's training loop."""

from sgoif.config import InfluenceConfig
from sgoif.errors import BatchError, CaptureError, InfluenceError, ScopeError
from sgoif.influence import OnlineInfluence
from sgoif.removal import estimate_wrong
from sgoif.result import InfluenceResult

__all__ = [
    "BatchError",
    "CaptureError",
    "InfluenceConfig",
    "InfluenceError",
    "InfluenceResult",
    "OnlineInfluence",
    "ScopeError",
    "estimate_wrong",
]
