"""The device that a command computes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgoif.errors import UserError

if TYPE_CHECKING:
    import torch


def pick_device(wanted: str, option: str, hint: str) -> torch.device:
    """Choose the device.

    Args:
        wanted: "cpu", "cuda", or "auto" for the GPU where there is one.
        option: Name of the option, for the error message.
        hint: What to do if there is no GPU, for the error message.

    Raises:
        UserError: If "cuda" is wanted and there is no GPU.
    """
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError(f"{option}: cuda was asked for, but torch sees no GPU here; {hint}")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")
