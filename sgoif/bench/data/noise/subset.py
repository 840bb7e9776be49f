"""Draw a part of a training set: a range of images, long-tailed classes, fewer images. A property of a noise setting.

    {kind: symmetric, rate: 0.2, images: {from: 25000}, balance: 50, profile: exponential, size: 6000, seed: 0}

`images` restricts the draw to positions `from` to `to` (not included) of the training set, such as those that no choice
of hyper-parameters has seen; without more keys all of them are kept.
`balance` is the ratio of the largest to the smallest class, by true classes. `profile` says how sizes fall: exponential
(class k of K has balance^(-k / (K - 1)) times the images of class 0) or step (the later half of the classes has
1 / balance of the earlier half). `size` is the number of images that are kept; without it as many as the balance
allows. Without `balance` every class keeps its share. `seed` draws the images, and besides them the noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from sgoif.errors import UserError

KEYS = ("images", "balance", "profile", "size")
RANGE_KEYS = ("from", "to")
PROFILES = ("exponential", "step")
STREAM = 1  # apart from the draws of the noise, which use the seed alone


@dataclass(frozen=True)
class Subset:
    """Which part of a training set is kept.

    Attributes:
        balance: Images of the largest class over those of the smallest; None: as in the data.
        profile: "exponential" or "step".
        size: Number of images; None: as many as the balance allows.
        seed: Seed of the draw.
        first: Position of the first image that may be kept.
        end: Position after the last image that may be kept; None: to the end of the training set.
    """

    balance: float | None
    profile: str
    size: int | None
    seed: int
    first: int = 0
    end: int | None = None

    def checked_range(self, n: int, where: str = "noise") -> range:
        """Return the positions that may be kept of a training set of n images.

        Raises:
            UserError: If it has no such images.
        """
        end = n if self.end is None else self.end
        if end > n or self.first >= end:
            asked = f"from {self.first}" + ("" if self.end is None else f" to {self.end}")
            raise UserError(f"{where}.images: {asked} is no part of a training set of {n} images")
        return range(self.first, end)

    def check_size(self, n: int, where: str = "noise") -> None:
        """Check that a training set of n images has as many in this range as are kept; its classes may have fewer.

        Raises:
            UserError: If it has not.
        """
        there = len(self.checked_range(n, where))
        if self.size is not None and self.size > there:
            raise UserError(f"{where}.size: {self.size} images cannot be kept, there are {there} to draw from")


def is_subset(setting: Mapping[str, Any]) -> bool:
    """Return whether a setting keeps only a part of the training set."""
    return "balance" in setting or "size" in setting or "images" in setting


def read_subset(setting: Mapping[str, Any], n_classes: int, where: str = "noise") -> Subset | None:
    """Return the subset that a setting asks for, after checking its keys; None if it keeps all images.

    Args:
        setting: The setting.
        n_classes: Number of classes K.
        where: Path of the setting in the configuration, for messages.

    Raises:
        UserError: If a value is not possible; the message names the key as `where.key`.
    """
    if not is_subset(setting):
        if "profile" in setting:
            raise UserError(f"{where}.profile: it says how class sizes fall and needs `balance`")
        return None
    balance, profile, size = setting.get("balance"), setting.get("profile", "exponential"), setting.get("size")
    if "balance" in setting and (not isinstance(balance, Real) or isinstance(balance, bool) or not float(balance) >= 1):
        raise UserError(f"{where}.balance: expected a ratio of at least 1 (largest to smallest class), got {balance!r}")
    if profile not in PROFILES:
        raise UserError(f"{where}.profile: {profile!r} is not one of {', '.join(PROFILES)}")
    if "profile" in setting and balance is None:
        raise UserError(f"{where}.profile: it says how class sizes fall and needs `balance`")
    if "size" in setting and (not isinstance(size, Integral) or isinstance(size, bool) or int(size) < n_classes):
        raise UserError(f"{where}.size: expected a number of images, at least {n_classes} (one a class), got {size!r}")
    if setting["kind"] == "collected":
        raise UserError(
            f"{where}: collected labels have no true classes to draw a part by; leave out {', '.join(KEYS)}"
        )
    first, end = _read_range(setting.get("images", {}), where)
    seed = int(setting.get("seed", 0))
    return Subset(None if balance is None else float(balance), profile, size, seed, first, end)


def _read_range(images: Any, where: str) -> tuple[int, int | None]:
    """Positions `from` and `to` of a setting's `images`; 0 and None where it says nothing."""
    if not isinstance(images, Mapping) or set(images) - set(RANGE_KEYS):
        raise UserError(f"{where}.images: expected positions, such as {{from: 25000, to: 50000}}, got {images!r}")
    for key, value in images.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 0:
            raise UserError(f"{where}.images.{key}: expected a position in the training set, from 0 on, got {value!r}")
    end = images.get("to")
    return int(images.get("from", 0)), None if end is None else int(end)


def draw_subset(subset: Subset, true_labels: np.ndarray, n_classes: int, where: str = "noise") -> np.ndarray:
    """Draw the images that are kept.

    A smaller subset of the same seed and balance lies inside a larger one.

    Args:
        subset: What to keep.
        true_labels: True labels of the training set, shape [N].
        n_classes: Number of classes K.
        where: Path of the setting, for messages.

    Returns:
        Positions of the kept images, ascending, int64, shape [n].

    Raises:
        UserError: If the range is not one of the training set, or a class has fewer images than the subset needs.
    """
    allowed = subset.checked_range(len(true_labels), where)
    true_labels = true_labels[allowed.start : allowed.stop]
    if subset.balance is None and subset.size is None:
        return np.arange(allowed.start, allowed.stop)
    counts = class_sizes(subset, np.bincount(true_labels, minlength=n_classes), where)
    rng = np.random.RandomState([subset.seed, STREAM])
    kept = [rng.permutation(np.flatnonzero(true_labels == y))[: counts[y]] for y in range(n_classes)]
    return allowed.start + np.sort(np.concatenate(kept))


def class_sizes(subset: Subset, available: np.ndarray, where: str = "noise") -> np.ndarray:
    """Return how many images of each class are kept, int64, shape [K].

    Args:
        subset: What to keep.
        available: Images of each class that there are, shape [K].
        where: Path of the setting, for messages.

    Raises:
        UserError: If a class has fewer, or would get none.
    """
    shares = _shares(subset, available)
    possible = float(np.min(available / shares))  # images in all, if sizes were no whole numbers
    if subset.size is None:
        counts = np.floor(possible * shares + 1e-9).astype(np.int64)
    else:
        counts = _rounded(subset.size * shares, subset.size)
    short = np.flatnonzero(counts > available)
    if len(short):
        y = int(short[0])
        raise UserError(
            f"{where}.size: {subset.size} images need {counts[y]} of class {y}, and there are {available[y]}; "
            f"at most {int(possible)} fit this balance"
        )
    if counts.min() < 1:
        raise UserError(f"{where}: class {int(counts.argmin())} would have no image; raise size or lower balance")
    return counts


def expected_size(setting: Mapping[str, Any], n: int, n_classes: int) -> int:
    """Return how many images a setting keeps of a dataset of n images, if its classes are of one size."""
    wanted = read_subset(setting, n_classes)
    if wanted is None:
        return n
    n = len(wanted.checked_range(n))
    if wanted.balance is None:
        return wanted.size or n
    return wanted.size or int(class_sizes(wanted, np.full(n_classes, n // n_classes)).sum())


def _shares(subset: Subset, available: np.ndarray) -> np.ndarray:
    """Share of each class among the kept images, shape [K], sum 1."""
    k = len(available)
    if subset.balance is None:
        weights = available.astype(float)
    elif subset.profile == "exponential":
        weights = subset.balance ** (-np.arange(k) / max(k - 1, 1))
    else:
        weights = np.where(np.arange(k) < k - k // 2, 1.0, 1 / subset.balance)
    return np.asarray(weights / weights.sum())


def _rounded(exact: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers that sum to `total`, by largest remainders."""
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - counts), kind="stable")
    counts[order[: total - counts.sum()]] += 1
    return counts
