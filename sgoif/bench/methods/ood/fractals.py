"""Generates pictures of fractals: the attractors of random iterated function systems (the mixing set of PixMix).

A system is 2-4 random affine maps of the plane, each a contraction, and a colour per map. The chaos game applies
randomly chosen maps to many points at once; a point's colour drifts to the colour of each map it meets. A pixel shows
the mean colour of the points in it, brighter where more of them fall (log scale), over a random background. A
function of `seed` alone: random numbers come from the CPU wherever the rest is computed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def random_systems(n: int, g: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw systems of affine maps A = R(a) diag(s1, s2) R(b).

    The singular values s are below 1, so that every system has an attractor.

    Returns:
        Maps A, shape [n, 4, 2, 2]; shifts, shape [n, 4, 2]; colours, shape [n, 4, 3]; probabilities of the maps,
        shape [n, 4].
    """
    a, b = 2 * math.pi * torch.rand(2, n, 4, generator=g)
    s = 0.2 + 0.65 * torch.rand(n, 4, 2, generator=g)
    sign = torch.where(torch.rand(n, 4, generator=g) < 0.5, -1.0, 1.0)
    maps = rotation(a) @ torch.diag_embed(s * torch.stack([torch.ones_like(sign), sign], -1)) @ rotation(b)
    shifts = 2 * torch.rand(n, 4, 2, generator=g) - 1
    count = torch.randint(2, 5, (n, 1), generator=g)
    # larger maps are taken more often, so that the attractor is covered evenly
    chance = s.prod(-1) * (torch.arange(4) < count)
    return maps, shifts, torch.rand(n, 4, 3, generator=g), chance / chance.sum(1, keepdim=True)


def rotation(angle: Tensor) -> Tensor:
    """Return rotation matrices, shape [..., 2, 2], for angles of shape [...]."""
    c, s = angle.cos(), angle.sin()
    return torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)


def fractals(n: int, size: int, channels: int = 3, seed: int = 0, device: torch.device | str = "cpu") -> Tensor:
    """Return pictures, uint8, shape [n, size, size, channels], on `device`; grey ones are the mean of the colours."""
    g = torch.Generator().manual_seed(seed)
    return torch.cat([_render(min(256, n - lo), size, channels, g, device) for lo in range(0, n, 256)])


def _render(n: int, size: int, channels: int, g: torch.Generator, device: torch.device | str) -> Tensor:
    points, rounds = max(size * size // 4, 16), 32  # eight points a pixel
    *system, chance = random_systems(n, g)
    maps, shifts, colours = (t.to(device) for t in system)
    rows = torch.arange(n, device=device)[:, None]
    at, colour = 2 * torch.rand(n, points, 2, generator=g) - 1, torch.rand(n, points, 3, generator=g)
    at, colour = at.to(device), colour.to(device)
    orbit, tints = [], []
    for step in range(8 + rounds):
        pick = torch.multinomial(chance, points, replacement=True, generator=g).to(device)  # [n, points]
        at = (maps[rows, pick] @ at[..., None]).squeeze(-1) + shifts[rows, pick]
        colour = (colour + colours[rows, pick]) / 2
        if step >= 8:  # by then the points lie on the attractor
            orbit.append(at)
            tints.append(colour)
    at, colour = torch.cat(orbit, 1), torch.cat(tints, 1)  # [n, rounds * points, …]
    low, high = at.amin(1, keepdim=True), at.amax(1, keepdim=True)
    pixel = ((at - low) / (high - low).clamp_min(1e-6) * (size - 1)).round().long()
    flat = (rows * size + pixel[..., 1]) * size + pixel[..., 0]
    hits = torch.bincount(flat.flatten(), minlength=n * size * size).float()
    total = torch.stack([torch.bincount(flat.flatten(), c.flatten(), n * size * size) for c in colour.unbind(-1)], -1)
    mean = (total / hits.clamp_min(1)[:, None]).view(n, size, size, 3)
    density = hits.log1p().view(n, size, size, 1)
    alpha = density / density.amax((1, 2), keepdim=True)
    background = (torch.rand(n, 1, 1, 3, generator=g) * torch.rand(n, 1, 1, 1, generator=g)).to(device)
    picture = alpha.sqrt() * mean + (1 - alpha.sqrt()) * background
    picture = picture.mean(-1, keepdim=True).expand(-1, -1, -1, channels) if channels != 3 else picture
    return (picture * 255).round().clamp(0, 255).to(torch.uint8).contiguous()
