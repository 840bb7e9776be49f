"""Features of the images of a listing by a pretrained network; no image is embedded twice."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch

from sgoif.errors import UserError
from sgoif.scan.decode import Unreadable, decode_square
from sgoif.scan.pixel_cache import map_in_order
from sgoif.scan.pretrained.embedding_cache import FEATURE, EmbeddingCache, cache_root, pixel_key
from sgoif.scan.progress import Progress
from sgoif.scan.settings import Settings
from sgoif.scan.sources.image_listing import Listing
from sgoif.training.images import ImageSet
from sgoif.training.models import Network
from sgoif.utils import interrupt

BLOCK = 256  # images that are decoded, and added to the cache, at a time
BATCH = {"cpu": 32, "cuda": 128}  # images of a forward pass
PRECISION = {"cpu": "float32", "cuda": "bfloat16"}


class Embedder:
    """A pretrained network that gives the features of images, from its cache where it has them.

    Attributes:
        dim: Features of an image.
    """

    def __init__(
        self, network: Network, settings: Settings, normalisation: tuple[Sequence[float], Sequence[float]], spare: Path
    ) -> None:
        """Open the cache of the network's weights.

        Args:
            network: The network; its head is not used.
            settings: Weights, size and device.
            normalisation: Mean and deviation of each channel that the weights expect.
            spare: Folder of the cache where that of the user cannot be written.
        """
        self.dim: int = network.head.in_features
        network.eval().to(settings.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._backbone = network.backbone
        self._settings, self._normalisation = settings, normalisation
        precision = PRECISION[settings.device]
        name = f"{settings.model}-{settings.weights}-{settings.size}-{precision}"
        try:
            self._cache = EmbeddingCache(cache_root() / name, self.dim)
        except OSError as e:
            print(
                f"note: features are kept in {spare} for this scan alone, {cache_root()} cannot be written "
                f"({e.strerror or e})",
                file=sys.stderr,
            )
            self._cache = EmbeddingCache(spare / name, self.dim)

    def embed(self, listing: Listing, path: Path, progress: Progress) -> tuple[np.ndarray, list[int]]:
        """Embeds the images of a listing; those that cannot be decoded are added to `listing.left_out`.

        Blocks that an interrupted call has finished are read from the cache.

        Args:
            listing: The N images.
            path: File for the features.
            progress: Called after each block.

        Returns:
            The features, float16, mapped from disk, shape [N, dim], and the positions that were embedded.
        """
        found = np.lib.format.open_memmap(path, mode="w+", dtype=FEATURE, shape=(len(listing), self.dim))
        kept: list[int] = []
        for first in range(0, len(listing), BLOCK):
            rows = range(first, min(first + BLOCK, len(listing)))
            decoded = self._decode(listing, rows)
            missing: dict[bytes, np.ndarray] = {}
            keys = {i: pixel_key(pixels) for i, pixels in decoded.items()}
            for i, key in keys.items():
                row = self._cache.get(key)
                if row is None:
                    missing[key] = decoded[i]
                else:
                    found[i] = row
            new = self._embed_missing(missing)
            for i, key in keys.items():
                if key in new:
                    found[i] = new[key]
            kept += keys
            progress(rows.stop, len(listing))
        found.flush()
        return found, kept

    def _decode(self, listing: Listing, rows: range) -> dict[int, np.ndarray]:
        """Return the pixels of images by position."""
        size, decoded = self._settings.size, {}
        for i, result in map_in_order(lambda i: decode_square(listing.open, i, size, 3), rows.start, rows.stop):
            if isinstance(result, Unreadable):
                listing.left_out.append((listing.names[i], str(result)))
            else:
                decoded[i] = result
        return decoded

    def _embed_missing(self, missing: dict[bytes, np.ndarray]) -> dict[bytes, np.ndarray]:
        """Embeds images by identity and adds them to the cache."""
        if not missing:
            return {}
        keys, batch = list(missing), BATCH[self._settings.device]
        parts = []
        for first in range(0, len(keys), batch):
            interrupt.raise_if_pending()
            parts.append(self._forward(np.stack([missing[key] for key in keys[first : first + batch]])))
        rows = np.concatenate(parts)
        self._cache.add(keys, rows)
        return dict(zip(keys, rows, strict=True))

    @torch.inference_mode()
    def _forward(self, pixels: np.ndarray) -> np.ndarray:
        """Return the features of images, float16, shape [n, dim]."""
        images = ImageSet(pixels, *self._normalisation, self._settings.device)
        amp = torch.autocast("cuda", torch.bfloat16) if self._settings.device == "cuda" else nullcontext()
        try:
            with amp:
                features = self._backbone(images.normalise(images.pixels))
        except torch.OutOfMemoryError:
            raise UserError("out of GPU memory while embedding; choose a smaller --size, or --device cpu") from None
        half: np.ndarray = features.float().cpu().numpy().astype(FEATURE)
        return half
