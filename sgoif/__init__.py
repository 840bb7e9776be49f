"""SG-OIF: online influence scores with a certificate, in anyone's training loop.

Names are imported when first used, so that `import sgoif` and the benchmark's planning do not load torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgoif.config import InfluenceConfig
    from sgoif.errors import BatchError, CaptureError, InfluenceError, ScopeError
    from sgoif.influence import OnlineInfluence
    from sgoif.label_noise.issues import LabelIssues
    from sgoif.result import InfluenceResult

_HOME = {
    "BatchError": "errors",
    "CaptureError": "errors",
    "InfluenceConfig": "config",
    "InfluenceError": "errors",
    "InfluenceResult": "result",
    "LabelIssues": "label_noise.issues",
    "OnlineInfluence": "influence",
    "ScopeError": "errors",
}
__all__ = [
    "BatchError",
    "CaptureError",
    "InfluenceConfig",
    "InfluenceError",
    "InfluenceResult",
    "LabelIssues",
    "OnlineInfluence",
    "ScopeError",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sgoif' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sgoif.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
