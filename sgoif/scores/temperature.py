"""Temperature of the softmax inside the gradients, followed along the training stream.

NLL(T) = mean_i CE(f_i / T, y_i),     dNLL / dlog T = mean_i (y_i - p_i)' f_i / T,   p_i = softmax(f_i / T)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

LOWEST, HIGHEST = 0.05, 20.0


def nll_slope(logits: Tensor, labels: Tensor, temperature: Tensor | float) -> tuple[Tensor, Tensor]:
    """First and (Gauss-Newton) second derivative of the NLL in log T, as device scalars; skips non-finite rows."""
    scaled = logits / temperature
    valid = torch.isfinite(scaled.sum(1))
    scaled = torch.where(valid.unsqueeze(1), scaled, 0)
    probs = torch.softmax(scaled, dim=1)
    expected = (probs * scaled).sum(1)
    given = scaled.gather(1, labels.clamp(0, logits.shape[1] - 1).unsqueeze(1)).squeeze(1)
    variance = (probs * scaled.square()).sum(1) - expected.square()
    count = valid.sum().clamp(min=1)
    return ((given - expected) * valid).sum() / count, (variance * valid).sum() / count


class StreamingTemperature(nn.Module):
    """T that follows the NLL of the passing batches: running slope over running curvature is one Newton step per batch.

    Training batches are fitted better than held-out ones, so this T is a lower estimate of the held-out one.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("log_t", torch.zeros((), dtype=dtype))

    @property
    def value(self) -> Tensor:
        return self.log_t.exp()

    def fold(self, logits: Tensor, labels: Tensor, rate: float = 0.1) -> None:
        slope, bend = nll_slope(logits.to(self.log_t.dtype), labels, self.value)
        step = (rate * slope / bend.clamp(min=1e-6)).clamp(-0.1, 0.1).nan_to_num(0.0)
        self.log_t = (self.log_t - step).clamp(torch.tensor(LOWEST).log().item(), torch.tensor(HIGHEST).log().item())
