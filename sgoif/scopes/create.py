"""Chooses the scope class that a configuration asks for."""

from __future__ import annotations

from torch import nn

from sgoif.config import InfluenceConfig
from sgoif.scopes.base import Scope
from sgoif.scopes.deep import DeepScope
from sgoif.scopes.head import HeadScope


def create_scope(model: nn.Module, n_examples: int, n_classes: int | None, config: InfluenceConfig) -> Scope:
    """Return the scope of `config.scope` and put its hooks on the model.

    Args:
        model: The model that is trained.
        n_examples: Number of training examples.
        n_classes: Number of classes, if known.
        config: Settings of the method.

    Raises:
        ScopeError: If the model has no head or no supported layer in scope.
    """
    kind = HeadScope if config.scope == "head" else DeepScope
    return kind(model, n_examples, n_classes, config)
