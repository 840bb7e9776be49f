"""Parameter scopes: which gradients the method uses, and what follows from that for every stage of a step.

`create_scope` returns a `HeadScope` (last layer, the default) or a `DeepScope` (several layers). A scope says how
passes are captured, scored and learnt from, on which examples directions are checked, and how external anchors pass
through the model. No files are read or written.
"""

from sgoif.scopes.base import LearningSample, Scope, ScoredBatch
from sgoif.scopes.create import create_scope
from sgoif.scopes.deep import DeepScope
from sgoif.scopes.head import HeadScope

__all__ = ["DeepScope", "HeadScope", "LearningSample", "Scope", "ScoredBatch", "create_scope"]
