"""Temperature of the softmax inside the gradients, tracked along the training stream.

NLL(T) = mean_i CE(f_i / T, y_i),     dNLL / dlog T = mean_i (y_i - p_i)' f_i / T,   p_i = softmax(f_i / T)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
MAX_LOG_STEP = 0.1  # largest change of log T per batch


def nll_slope(logits: Tensor, labels: Tensor, temperature: Tensor | float) -> tuple[Tensor, Tensor]:
    """Return the first and the (Gauss-Newton) second derivative of the NLL in log T.

    Args:
        logits: Model outputs, shape [n, C]; rows that are not finite are left out.
        labels: Labels of the batch, shape [n].
        temperature: The T at which the derivatives are taken.

    Returns:
        Both derivatives, as scalars on the device of the logits.
    """
    scaled = logits / temperature
    valid = torch.isfinite(scaled.sum(1))
    scaled = torch.where(valid.unsqueeze(1), scaled, 0)
    probs = torch.softmax(scaled, dim=1)
    expected = (probs * scaled).sum(1)
    label_logit = scaled.gather(1, labels.clamp(0, logits.shape[1] - 1).unsqueeze(1)).squeeze(1)
    variance = (probs * scaled.square()).sum(1) - expected.square()
    count = valid.sum().clamp(min=1)
    return ((label_logit - expected) * valid).sum() / count, (variance * valid).sum() / count


class StreamingTemperature(nn.Module):
    """The temperature T that minimises the NLL of the passing batches, by one damped Newton step in log T per batch.

    Training batches are fitted better than held-out ones, so this T is a lower estimate of the held-out one.
    """

    log_t: Tensor

    def __init__(self, dtype: torch.dtype) -> None:
        """Start at T = 1.

        Args:
            dtype: Precision in which log T is kept and updated.
        """
        super().__init__()
        self.register_buffer("log_t", torch.zeros((), dtype=dtype))

    @property
    def value(self) -> Tensor:
        """The current T, a scalar."""
        return self.log_t.exp()

    def update(self, logits: Tensor, labels: Tensor, rate: float = 0.1) -> None:
        """Take one Newton step towards the T of this batch.

        Args:
            logits: Model outputs, shape [n, C].
            labels: Labels of the batch, shape [n].
            rate: Share of the full Newton step.
        """
        slope, curvature = nll_slope(logits.to(self.log_t.dtype), labels, self.value)
        step = (rate * slope / curvature.clamp(min=1e-6)).clamp(-MAX_LOG_STEP, MAX_LOG_STEP).nan_to_num(0.0)
        lowest, highest = torch.tensor(MIN_TEMPERATURE).log().item(), torch.tensor(MAX_TEMPERATURE).log().item()
        self.log_t = (self.log_t - step).clamp(lowest, highest)
