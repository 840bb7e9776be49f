"""Only regular files, and links to them, are opened: a named pipe, a socket or a device could block forever."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from sgoif.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

NOT_REGULAR = "not a regular file"
OPENED = (stat.S_ISREG, stat.S_ISDIR)  # opening these never waits for another process


def is_special(path: Path | str) -> bool:
    """Return whether there is something at `path` that is neither a regular file nor a folder, nor a link to one."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # nothing there, or a broken link: whoever opens it gets the reason
        return False
    return not any(is_kind(mode) for is_kind in OPENED)


def require_no_special(path: Path, what_to_do: str) -> None:
    """Check a path before it is opened.

    Args:
        path: A file that the user named, or one of a scan.
        what_to_do: End of the message.

    Raises:
        UserError: If it is a named pipe, a socket or a device.
    """
    if is_special(path):
        raise UserError(f"{path} is {NOT_REGULAR} (but a pipe, a socket or a device); {what_to_do}")


def open_image_file(path: Path | str) -> Image:
    """Open an image file, not yet decoded.

    Raises:
        OSError: If it is not a regular file, or cannot be opened.
    """
    from PIL import Image

    if is_special(path):
        raise OSError(NOT_REGULAR)
    return Image.open(path)
