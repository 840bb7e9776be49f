"""Seeds and random generators that are pure functions of a few numbers and names."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import numpy as np
import torch


def mix_seed(*parts: int | str) -> int:
    """Hash several numbers or names into one seed.

    Args:
        *parts: What the seed depends on, e.g. a run's seed, a phase and an epoch.

    Returns:
        A 63-bit seed, the same on every machine.
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def numpy_generator(*parts: int | str) -> np.random.Generator:
    """Make a NumPy generator that is a function of `parts` alone."""
    return np.random.default_rng(mix_seed(*parts))


def torch_generator(*parts: int | str) -> torch.Generator:
    """Make a CPU generator of torch that is a function of `parts` alone."""
    return torch.Generator().manual_seed(mix_seed(*parts))


@contextlib.contextmanager
def seeded_weights(seed: int) -> Iterator[None]:
    """Make the initial weights of networks built inside a function of `seed` alone.

    The state of torch's global generator is restored afterwards.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix_seed(seed, "weights"))
        yield
