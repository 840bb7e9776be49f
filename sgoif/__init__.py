"""SG-OIF: find wrong labels while a network trains, in your own training loop.

`OnlineInfluence` is the way in; its settings are `InfluenceConfig`, its scores an `InfluenceResult`. With features at
hand, `find_label_issues(features, labels)` is all of it in one call. Names are imported
when first used, so that `import sgoif` and the benchmark's planning do not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgoif.anchors.external import AnchorData
    from sgoif.check_history import CheckHistory
    from sgoif.config import InfluenceConfig
    from sgoif.errors import BatchError, CaptureError, InfluenceError, ScopeError
    from sgoif.features.find import FeatureIssues, find_label_issues
    from sgoif.features.head import HeadRecipe
    from sgoif.gradients.hooks import CapturedPass
    from sgoif.influence import OnlineInfluence
    from sgoif.label_noise.issues import LabelIssues
    from sgoif.result import InfluenceResult

__version__ = "0.1.0"

_HOME = {
    "AnchorData": "anchors.external",
    "BatchError": "errors",
    "CaptureError": "errors",
    "CapturedPass": "gradients.hooks",
    "CheckHistory": "check_history",
    "FeatureIssues": "features.find",
    "HeadRecipe": "features.head",
    "InfluenceConfig": "config",
    "InfluenceError": "errors",
    "InfluenceResult": "result",
    "LabelIssues": "label_noise.issues",
    "OnlineInfluence": "influence",
    "ScopeError": "errors",
    "find_label_issues": "features.find",
}
__all__ = [
    "AnchorData",
    "BatchError",
    "CaptureError",
    "CapturedPass",
    "CheckHistory",
    "FeatureIssues",
    "HeadRecipe",
    "InfluenceConfig",
    "InfluenceError",
    "InfluenceResult",
    "LabelIssues",
    "OnlineInfluence",
    "ScopeError",
    "__version__",
    "find_label_issues",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sgoif' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sgoif.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
