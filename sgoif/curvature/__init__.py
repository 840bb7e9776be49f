"""Curvature backends: `Curvature.registry` maps the names a configuration may use to the classes."""

from sgoif.curvature.base import Curvature
from sgoif.curvature.diagonal import DiagonalCurvature
from sgoif.curvature.empirical_fisher import FisherCurvature
from sgoif.curvature.kfac import KroneckerCurvature
from sgoif.curvature.lowrank import LowRankCurvature

__all__ = ["Curvature", "DiagonalCurvature", "FisherCurvature", "KroneckerCurvature", "LowRankCurvature"]
