"""Peak memory of a stretch of work."""

from __future__ import annotations

import resource
from pathlib import Path

import torch


class PeakMemory:
    """Measures the peak memory of a `with` block: of the GPU's allocator, or of the process on a CPU.

    Attributes:
        mb: The peak in MiB, once the block has ended; None before.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.mb: float | None = None

    def __enter__(self) -> PeakMemory:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            try:  # Linux: forget the process's earlier peak
                Path("/proc/self/clear_refs").write_text("5")
            except OSError:
                pass
        return self

    def __exit__(self, *_: object) -> None:
        if self.device.type == "cuda":
            self.mb = round(torch.cuda.max_memory_allocated(self.device) / 2**20, 1)
        else:
            self.mb = round(_process_peak_kb() / 1024, 1)


def _process_peak_kb() -> float:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1])
    except OSError:
        pass
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
