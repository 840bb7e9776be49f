"""Curvature backends: running estimates of the curvature that can be multiplied and inverted.

`Curvature.registry` maps the names that `InfluenceConfig.curvature` may have to the classes. A backend is updated with
batches of gradients, refactorised at every check, and asked for products with its matrix, its inverse and its damping.
No files are read or written.

A new backend is a file here with a subclass of `Curvature` that has a `name`, its import below, and its name among the
choices of `InfluenceConfig.curvature` (sgoif/config.py).
"""

from sgoif.curvature.base import Curvature
from sgoif.curvature.diagonal import DiagonalCurvature
from sgoif.curvature.empirical_fisher import FisherCurvature
from sgoif.curvature.kfac import KroneckerCurvature
from sgoif.curvature.lowrank import LowRankCurvature

__all__ = ["Curvature", "DiagonalCurvature", "FisherCurvature", "KroneckerCurvature", "LowRankCurvature"]
