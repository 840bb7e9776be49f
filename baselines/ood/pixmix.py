"""PixMix (Hendrycks, Zou, Mazeika et al., CVPR 2022): training images mixed with pictures of rich structure.

With probability 1/2 start from an augmented copy of x. Then, j ~ U{0 … k} times, mix in (1/2) another augmented copy
of x or (1/2) the image's mixing picture m, and clip to [0, 1], everything in pixel values on the scale 0 … 1:

    add:  (a (2x - 1) + b (2m - 1) + 1) / 2        multiply:  (2x)^a max(2m, 1e-37)^b / 2
    (a, b) = (Beta(beta, 1), Beta(1, beta))  or  (1 + Beta(1, beta), -Beta(1, beta)),  each with probability 1/2

Score: s(x) = -max_k softmax(f(x))_k. Training is otherwise the dataset's recipe.

The augmented copy is one of the 13 operations at severity 3 (AugMix's ranges), here on whole batches of tensors:
autocontrast, equalize, posterize, solarize; rotate, shear x, shear y, translate x, translate y (bilinear, black
border); color, contrast, brightness, sharpness. Difference from the paper: the mixing set is generated
(`sgoif.bench.fractals`), with no downloaded fractals or feature visualisations; nothing of it comes from an OOD test
set.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.contracts import OODDetector, OODTask
from sgoif.bench.fractals import fractals
from sgoif.bench.images import ImageSet, mix_seed

TONE = ("autocontrast", "equalize", "posterize", "solarize")
GEOMETRY = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
BLEND = ("color", "contrast", "brightness", "sharpness")
OPERATIONS = TONE + GEOMETRY + BLEND


def grey(x: Tensor) -> Tensor:
    """Luma [n, 1, H, W]."""
    weights = torch.tensor([0.299, 0.587, 0.114], device=x.device).view(1, 3, 1, 1)
    return (x * weights).sum(1, keepdim=True) if x.shape[1] == 3 else x.mean(1, keepdim=True)


def tone(name: str, x: Tensor, level: Tensor) -> Tensor:
    if name == "autocontrast":
        low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
        return torch.where(high > low, (x - low) / (high - low).clamp_min(1e-6), x)
    if name == "equalize":
        from torchvision.transforms.v2 import functional as V

        return V.equalize((x * 255).round().to(torch.uint8)).float() / 255
    level = level.view(-1, 1, 1, 1)
    if name == "posterize":
        width = 2.0 ** (4 + (level * 0.4).floor())  # 4 bits left, or 3 at a level of 2.5 and more
        return ((x * 255).round() / width).floor() * width / 255
    return torch.where(x * 255 < 256 - (level * 25.6).floor(), x, 1 - x)  # solarize


def geometry(names: list[str], x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """One affine resampling per image; the grid maps output to input, in units of half an image."""
    kind = torch.tensor([GEOMETRY.index(n) for n in names], device=x.device)
    angle = torch.deg2rad((level * 3).floor()) * sign * (kind == 0)
    shear, move = level * 0.03 * sign, (level * x.shape[2] / 30).floor() * 2 / x.shape[2] * sign
    cos, sin = angle.cos(), angle.sin()
    across, down = shear * (kind == 1), shear * (kind == 2)  # about the upper left corner, as Pillow does
    first = torch.stack([cos, -sin + across, move * (kind == 3) + across], 1)
    second = torch.stack([sin + down, cos, move * (kind == 4) + down], 1)
    grid = F.affine_grid(torch.stack([first, second], 1), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="zeros", align_corners=False)


def blend(name: str, x: Tensor, level: Tensor) -> Tensor:
    """factor * x + (1 - factor) * (x without colour, contrast, light or edges)."""
    factor = (level * 0.18 + 0.1).view(-1, 1, 1, 1)
    if name == "color":
        poor = grey(x).expand_as(x)
    elif name == "contrast":
        poor = grey(x).mean((2, 3), keepdim=True)
    elif name == "brightness":
        poor = torch.zeros_like(x)
    else:
        kernel = torch.ones(x.shape[1], 1, 3, 3, device=x.device) / 13
        kernel[:, :, 1, 1] = 5 / 13
        poor = x.clone()  # the border stays as it is
        poor[:, :, 1:-1, 1:-1] = F.conv2d(x, kernel, groups=x.shape[1])
    return factor * x + (1 - factor) * poor


def augmented(x: Tensor, severity: float) -> Tensor:
    """Each image [n, C, H, W] in 0 … 1 after one random operation. What is drawn is drawn on the CPU."""
    n, device = len(x), x.device
    chosen = torch.randint(len(OPERATIONS), (n,))
    level = (0.1 + (severity - 0.1) * torch.rand(n)).to(device)
    sign = torch.where(torch.rand(n) < 0.5, -1.0, 1.0).to(device)
    out = torch.empty_like(x)
    for i, name in enumerate(OPERATIONS):
        at = (chosen == i).nonzero().flatten().to(device)
        if len(at) and name not in GEOMETRY:
            out[at] = (tone if name in TONE else blend)(name, x[at], level[at])
    first = len(TONE)
    at = ((chosen >= first) & (chosen < first + len(GEOMETRY))).nonzero().flatten()
    if len(at):
        names = [OPERATIONS[i] for i in chosen[at]]
        at = at.to(device)
        out[at] = geometry(names, x[at], level[at], sign[at])
    return out


def coefficients(n: int, beta: float) -> tuple[Tensor, Tensor]:
    """(a, b) of n mixtures [n]; u^(1/beta) of a uniform u is Beta(beta, 1), and 1 - u^(1/beta) is Beta(1, beta)."""
    u, v = torch.rand(2, n) ** (1 / beta)
    positive = torch.rand(n) < 0.5
    return torch.where(positive, u, 2 - u), torch.where(positive, 1 - v, v - 1)


def add(x: Tensor, m: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return (a * (2 * x - 1) + b * (2 * m - 1) + 1) / 2


def multiply(x: Tensor, m: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return (2 * x) ** a * (2 * m).clamp_min(1e-37) ** b / 2


def pixmix(x: Tensor, pictures: Tensor, rounds: int, beta: float, severity: float) -> Tensor:
    """Mixed images; x and pictures [n, C, H, W] in 0 … 1."""
    n, device = len(x), x.device
    copies = augmented(x.repeat(rounds + 1, 1, 1, 1), severity).view(rounds + 1, *x.shape)

    def coin() -> Tensor:
        return (torch.rand(n) < 0.5).view(n, 1, 1, 1).to(device)

    mixed = torch.where(coin(), copies[0], x)
    times = torch.randint(rounds + 1, (n,)).view(n, 1, 1, 1).to(device)
    for r in range(rounds):
        other = torch.where(coin(), copies[r + 1], pictures)
        a, b = (c.view(n, 1, 1, 1).to(device) for c in coefficients(n, beta))
        new = torch.where(coin(), add(mixed, other, a, b), multiply(mixed, other, a, b)).clamp(0, 1)
        mixed = torch.where(times > r, new, mixed)
    return mixed


def crops(pictures: Tensor, n: int, size: int) -> Tensor:
    """n random pictures, cut to a random place: uint8 [N, S, S, C] -> [n, C, size, size] in 0 … 1."""
    pick = torch.randint(len(pictures), (n, 1, 1))
    corner = torch.randint(pictures.shape[1] - size + 1, (2, n, 1))
    rows, cols = corner + torch.arange(size)
    index = (i.to(pictures.device) for i in (pick, rows[:, :, None], cols[:, None, :]))
    return pictures[tuple(index)].permute(0, 3, 1, 2).float() / 255


class PixMix(OODDetector):
    name = "pixmix"
    title = "PixMix"
    reads_plain = False

    @dataclass(frozen=True)
    class Params:
        pictures: int = 2000  # size of the mixing set; no more than training images
        k: int = 4
        beta: float = 3.0
        severity: float = 3.0

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.pictures >= 1, "pictures", "at least 1")
        self.need(self.params.k >= 0, "k", "must not be negative")
        self.need(self.params.beta > 0, "beta", "must be above 0")
        self.need(self.params.severity >= 0.1, "severity", "at least 0.1")

    def fit(self, task: OODTask) -> None:
        p, images, batches = self.params, task.train, task.batches()
        border = max(images.size // 8, 1)  # 32 pixels are cut out of 36
        n = min(p.pictures, len(images))
        drawn = fractals(n, images.size + border, images.channels, mix_seed(task.seed, "fractals")).to(images.device)
        mean, std = (torch.tensor(v, device=images.device).view(1, -1, 1, 1) for v in (images.mean, images.std))
        learner = task.learner(batches)
        for epoch in task.session.epochs(task.recipe.epochs, learner):
            for batch in batches.epoch(epoch):
                m = crops(drawn, len(batch.x), images.size)
                x = pixmix(images.denormalise(batch.x).clamp(0, 1), m, p.k, p.beta, p.severity)
                learner.step(F.cross_entropy(learner((x - mean) / std), batch.y))
        self.task, self.net = task, learner.net

    def score(self, images: ImageSet) -> Tensor:
        return -self.logits(images).softmax(1).amax(1)
