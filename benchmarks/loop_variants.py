"""How well wrong labels are found in loops as people write them: other losses, mixed images, samplers, dropout.

    python -m benchmarks.loop_variants --dataset cifar10 [--variants "CutMix 1"] [--noise pair40] [--out variants.json]

Every variant changes one thing of an ordinary eager loop (SGD, one-cycle, images shifted), watched as the quickstart
says. Plain scores are margin, loss and probability of the label in the same passes, each over all of training, its last
half and its last epoch, and margin and loss of one pass in eval mode after it. `best_plain` is the best of the eleven,
chosen with the truth. Figures are AUC-PR.

Images from `--first` on are used: hyper-parameters of SG-OIF were chosen on earlier ones of CIFAR-10. Of Fashion-MNIST
they were chosen on at most 20,000 at a time; which ones is not recorded everywhere.
"""

import argparse
import contextlib
import functools
import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score
from torch import Tensor, nn

from benchmarks.common import Report, run_command, temporary_folder
from sgoif import OnlineInfluence
from sgoif.bench.data import catalogue, load
from sgoif.bench.data.noisy_labels import read_kept, setting_files, write_setting
from sgoif.training.arm_convolutions import matmul_conv_gradients
from sgoif.training.images import ImageSet
from sgoif.training.models import MODELS, Network, resnet9
from sgoif.utils.files import load_npz

N_CLASSES = 10
LONG_TAIL = 20  # images of the largest class to one of the smallest, where a variant is about class sizes
NOISE = {
    "sym20": {"kind": "symmetric", "rate": 0.2},
    "pair40": {"kind": "asymmetric", "rate": 0.4, "map": "next"},
    "cc40": {"kind": "class_conditional", "noise": 0.4, "sparsity": 0.4},
    "human": {"kind": "human", "column": "worse_label"},
}


@dataclass(frozen=True)
class Kind:
    """How a dataset is trained on, unless an option says otherwise.

    Attributes:
        model: Name of the network.
        examples: Number of images.
        tail: The same at most where classes are of different sizes.
        first: Position of the first image.
        lr: Highest learning rate.
        shift: Pixels by which images are shifted at most.
        flip: Whether half of them are mirrored.
        noise: Its kinds of noise.
    """

    model: str
    examples: int
    tail: int
    first: int
    lr: float
    shift: int
    flip: bool
    noise: tuple[str, ...]


DRAWN = ("sym20", "pair40", "cc40")  # human labels are there for CIFAR-10 alone
DATASETS = {
    "digits": Kind("tiny_cnn", 1_000, 400, 0, 0.1, 1, False, DRAWN),
    "FashionMNIST": Kind("lenet5", 5_000, 5_000, 40_000, 0.05, 2, True, DRAWN),
    "cifar10": Kind("resnet9", 4_000, 4_000, 25_000, 0.2, 4, True, (*DRAWN, "human")),
}

Loss = Callable[[Tensor, Tensor], Tensor]
Mix = Callable[[Tensor, np.random.Generator], tuple[Tensor, Tensor, float]]


# --- losses: of logits [n, K] and labels [n] -----------------------------------------------------------------------


def smoothed(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy to labels that give 0.1 to all classes alike."""
    return F.cross_entropy(logits, labels, label_smoothing=0.1)


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    """Focal loss with exponent 2 (Lin et al., 2017)."""
    loss = F.cross_entropy(logits, labels, reduction="none")
    return ((1 - (-loss).exp()) ** 2 * loss).mean()


def binary(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of every class, summed, as in timm's newer recipes."""
    return F.binary_cross_entropy_with_logits(logits, F.one_hot(labels, N_CLASSES).float(), reduction="sum") / len(
        labels
    )


# --- mixed images: of images [n, C, H, W] to mixed ones, whom each was mixed with [n], and the larger share ---------


def mixup(alpha: float) -> Mix:
    """Sums of two images, their shares from Beta(alpha, alpha) (Zhang et al., 2018)."""

    def mix(x: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor, float]:
        share = rng.beta(alpha, alpha)
        share = max(share, 1 - share)
        other = torch.from_numpy(rng.permutation(len(x)))
        return share * x + (1 - share) * x[other], other, share

    return mix


def cutmix(x: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor, float]:
    """Images with a rectangle of another one, at most half of the area (Yun et al., 2019; alpha = 1)."""
    height, width = x.shape[2:]
    part = np.sqrt(min(share := rng.uniform(), 1 - share))
    top, left = (int(rng.integers(side - int(part * side) + 1)) for side in (height, width))
    rows, columns = slice(top, top + int(part * height)), slice(left, left + int(part * width))
    other = torch.from_numpy(rng.permutation(len(x)))
    mixed = x.clone()
    mixed[:, :, rows, columns] = x[other][:, :, rows, columns]
    return mixed, other, 1 - int(part * height) * int(part * width) / (height * width)


def without_a_square(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Set a square of half the side to zero in every image, each elsewhere (Cutout; DeVries and Taylor, 2017)."""
    side = x.shape[2] // 2
    corner = torch.from_numpy(rng.integers(0, x.shape[2] - side + 1, (len(x), 2)))
    place = torch.arange(x.shape[2])
    inside = (place >= corner[:, :, None]) & (place < corner[:, :, None] + side)  # [n, 2, side]
    return x.masked_fill((inside[:, 0, :, None] & inside[:, 1, None, :])[:, None], 0.0)


@dataclass(frozen=True)
class Variant:
    """What a loop does differently.

    Attributes:
        loss: Of logits and labels.
        mix: How images are mixed, or None.
        shifts: Whether images are shifted and flipped.
        cutout: Whether a square of every image is taken out.
        dropout: Share of the features that is dropped before the last layer.
        clip: Largest norm of the gradient, or None.
        parts: Backward passes of a step, as in gradient accumulation.
        balance: Images of the largest class to one of the smallest.
        balanced_sampler: Whether every label is drawn as often, with replacement.
        weighted: Whether the loss weighs labels by the inverse of their frequency.
        extra_pass: Whether images are watched before they are mixed, in a pass of its own without gradient.
    """

    loss: Loss = F.cross_entropy
    mix: Mix | None = None
    shifts: bool = True
    cutout: bool = False
    dropout: float = 0.0
    clip: float | None = None
    parts: int = 1
    balance: float = 1
    balanced_sampler: bool = False
    weighted: bool = False
    extra_pass: bool = False


VARIANTS = {
    "plain": Variant(),
    "no augmentation": Variant(shifts=False),
    "Cutout": Variant(cutout=True),
    "mixup 0.2": Variant(mix=mixup(0.2)),
    "mixup 1": Variant(mix=mixup(1.0)),
    "mixup 1, extra pass": Variant(mix=mixup(1.0), extra_pass=True),
    "CutMix 1": Variant(mix=cutmix),
    "CutMix 1, extra pass": Variant(mix=cutmix, extra_pass=True),
    "label smoothing 0.1": Variant(loss=smoothed),
    "focal loss": Variant(loss=focal),
    "binary cross-entropy": Variant(loss=binary),
    "dropout 0.5": Variant(dropout=0.5),
    "clipped gradients": Variant(clip=1.0),
    "accumulated, 4 of 32": Variant(parts=4),
    "long tail": Variant(balance=LONG_TAIL),
    "long tail, class weights": Variant(balance=LONG_TAIL, weighted=True),
    "long tail, balanced sampler": Variant(balance=LONG_TAIL, balanced_sampler=True),
}


@dataclass(frozen=True)
class Case:
    """One training: variant, noise, seed and the sizes of it all."""

    dataset: str
    variant: str
    noise: str
    seed: int
    data: Path
    first: int
    examples: int
    width: int
    epochs: int
    batch: int
    lr: float


class PlainScores:
    """Margin, loss and probability of the given labels, by epoch.

    Args:
        epochs: Number of epochs E.
        n: Number of examples N.
    """

    KINDS = ("margin", "loss", "probability")

    def __init__(self, epochs: int, n: int) -> None:
        self.sums = torch.zeros(epochs, len(self.KINDS), n)
        self.visits = torch.zeros(epochs, n)

    def add(self, epoch: int, index: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Add the pass of a batch; an example may be in it several times."""
        for row, values in zip(self.sums[epoch], suspicion_by(logits, labels), strict=True):
            row.index_add_(0, index, values)
        self.visits[epoch].index_add_(0, index, torch.ones(len(index)))

    def read(self) -> Iterator[tuple[str, Tensor]]:
        """Give the means [N] over all of training, its last half and its last epoch; without a visit: of all."""
        epochs = len(self.sums)
        total = self.sums.sum(0) / self.visits.sum(0).clamp(min=1)
        for window, start in {"all": 0, "half": epochs // 2, "last": epochs - 1}.items():
            visits = self.visits[start:].sum(0)
            means = torch.where(visits > 0, self.sums[start:].sum(0) / visits.clamp(min=1), total)
            for kind, values in zip(self.KINDS, means, strict=True):
                yield f"{kind} {window}", values


def suspicion_by(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return margin, loss and probability of the labels, [n] each, so that more is more suspicious."""
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    loss = F.cross_entropy(logits, labels, reduction="none")
    return others - own, loss, -(-loss).exp()


def measure(case: Case) -> dict:
    """Train once and return AUC-PR of SG-OIF, its parts and the plain scores."""
    torch.manual_seed(case.seed)
    variant = VARIANTS[case.variant]
    images, labels, wrong = read_data(case, variant.balance)
    influence, plain, net = train(case, variant, images, labels)
    result = influence.scores()
    issues = result.find_label_issues(labels)
    net.eval()
    with torch.no_grad():
        logits = torch.cat([net(x) for x in images.iter_batches(torch.arange(len(labels)).split(500))])
    margin, loss, _ = suspicion_by(logits, labels)

    def auc_pr(suspicion: Tensor) -> float:
        return 100 * float(average_precision_score(wrong, suspicion.numpy()))

    scores = {name: auc_pr(values) for name, values in [*plain.read(), ("margin after", margin), ("loss after", loss)]}
    best = max(scores, key=scores.__getitem__)
    first = issues.order[: max(1, len(labels) // 100)]
    return {
        "sgoif": auc_pr(result.suspicion),
        "best_plain": scores[best],
        "best_plain_is": best,
        "influence": auc_pr(result.score),
        "log_odds": auc_pr(result.log_odds),
        "margin": auc_pr(result.margin),
        "first_percent": 100 * float(wrong[first].mean()),
        "wrong": 100 * float(wrong.mean()),
        "counted": 100 * float(issues.count / len(labels)),
        "fits_labels": 100 * float((logits.argmax(1) == labels).float().mean()),
        "plain": scores,
    }


def read_data(case: Case, balance: float) -> tuple[ImageSet, Tensor, np.ndarray]:
    """Return images, given labels [N] and which of these are wrong [N]."""
    facts = catalogue.get(case.dataset)
    noise = {**NOISE[case.noise], "images": {"from": case.first}, "balance": balance, "seed": case.seed}
    noise["size"] = case.examples if balance == 1 else min(case.examples, DATASETS[case.dataset].tail)
    with temporary_folder() as folder:
        write_setting(case.data, folder, case.dataset, case.noise, noise)
        files = setting_files(folder, case.dataset, case.noise)
        kept, labels = read_kept(files.labels, case.data, case.dataset)
        wrong = load_npz(files.truth)["wrong"]
    images = ImageSet(load.images(case.data, case.dataset, "train")[kept], facts.mean, facts.std)
    return images, torch.from_numpy(labels), wrong


def train(
    case: Case, variant: Variant, images: ImageSet, labels: Tensor
) -> tuple[OnlineInfluence, PlainScores, Network]:
    """Train a network by a variant of the loop, watched.

    Returns:
        What watched, the plain scores, and the network.
    """
    rng = np.random.default_rng(case.seed)
    n = len(labels)
    net = make_network(case, variant, images)
    loss_of, chances = weighted_by_label(variant, labels)
    optimizer = torch.optim.SGD(net.parameters(), case.lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
    steps = -(-n // case.batch) * case.epochs
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, case.lr, steps, pct_start=0.2)
    plain = PlainScores(case.epochs, n)
    influence = OnlineInfluence(net, n, N_CLASSES)

    def train_on(index: Tensor, share_of_step: float) -> Tensor:
        """Do the passes of some images; return the logits that were watched."""
        x, y = augmented(images, index, DATASETS[case.dataset], variant, rng), labels[index]
        if variant.extra_pass:
            net.eval()
            with influence.watch(index, y), torch.no_grad():
                watched = net(x)
            net.train()
        partner, share = torch.arange(len(index)), 1.0
        if variant.mix is not None:
            x, partner, share = variant.mix(x, rng)
        with contextlib.nullcontext() if variant.extra_pass else influence.watch(index, y):
            logits = net(x)
            loss = share * loss_of(logits, y) + (1 - share) * loss_of(logits, y[partner])
            (share_of_step * loss).backward()
        return watched if variant.extra_pass else logits.detach()

    with influence, matmul_conv_gradients():
        for epoch in range(case.epochs):
            order = rng.permutation(n) if chances is None else rng.choice(n, n, p=chances)
            for batch in torch.from_numpy(order).split(case.batch):
                optimizer.zero_grad()
                for index in batch.split(-(-case.batch // variant.parts)):
                    plain.add(epoch, index, train_on(index, len(index) / len(batch)), labels[index])
                if variant.clip is not None:
                    nn.utils.clip_grad_norm_(net.parameters(), variant.clip)
                optimizer.step()
                schedule.step()
                influence.step(optimizer)
            influence.end_epoch()
    return influence, plain, net


def make_network(case: Case, variant: Variant, images: ImageSet) -> Network:
    """Make the dataset's network, with dropout before its last layer if the variant has it."""
    model = DATASETS[case.dataset].model
    make = functools.partial(resnet9, width=case.width) if model == "resnet9" else MODELS[model]
    net = make(N_CLASSES, images.channels, images.size)
    if variant.dropout:
        net.backbone = nn.Sequential(net.backbone, nn.Dropout(variant.dropout))
    return net


def weighted_by_label(variant: Variant, labels: Tensor) -> tuple[Loss, np.ndarray | None]:
    """Return the variant's loss, and with a balanced sampler the chance of every example to be drawn, [N]."""
    frequency = torch.bincount(labels, minlength=N_CLASSES).clamp(min=1) / len(labels)
    loss_of = variant.loss
    if variant.weighted:
        loss_of = functools.partial(F.cross_entropy, weight=1 / (N_CLASSES * frequency))
    if not variant.balanced_sampler:
        return loss_of, None
    chances = (1 / frequency[labels]).double().numpy()
    return loss_of, chances / chances.sum()


def augmented(images: ImageSet, index: Tensor, kind: Kind, variant: Variant, rng: np.random.Generator) -> Tensor:
    """Return normalised images [n, C, H, W], shifted, flipped and cut as the dataset and the variant say."""
    if variant.shifts:
        shift = torch.from_numpy(rng.integers(0, 2 * kind.shift + 1, (len(index), 2)))
        flip = torch.from_numpy(rng.random(len(index)) < 0.5) if kind.flip else None
        x = images.batch(index, shift, flip, kind.shift)
    else:
        x = images.batch(index)
    return without_a_square(x, rng) if variant.cutout else x


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--dataset", choices=DATASETS, default="digits")
    options.add_argument("--data", type=Path, default=Path("data"), help="folder of prepared datasets")
    options.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="VARIANT")
    options.add_argument("--noise", nargs="+", choices=NOISE, help="left out: all that the dataset has")
    options.add_argument("--seeds", type=int, nargs="+", default=[0])
    options.add_argument("--first", type=int, help="position of the first image")
    options.add_argument("--examples", type=int, help="number of images")
    options.add_argument("--width", type=int, default=8, help="channels of the first layer of ResNet-9")
    options.add_argument("--epochs", type=int, default=15)
    options.add_argument("--batch", type=int, default=128)
    options.add_argument("--lr", type=float, help="highest learning rate")
    options.add_argument("--workers", type=int, default=2, help="processes, of one thread each; 1: none but this one")
    options.add_argument("--out", type=Path, help="JSON file for the figures")
    chosen = options.parse_args(arguments)
    kind = DATASETS[chosen.dataset]
    for key in ("first", "examples", "lr", "noise"):
        if getattr(chosen, key) is None:
            setattr(chosen, key, getattr(kind, key))
    report = Report("loop_variants", chosen)
    sizes = {key: getattr(chosen, key) for key in ("data", "first", "examples", "width", "epochs", "batch", "lr")}
    cases = [
        Case(chosen.dataset, variant, noise, seed, **sizes)
        for seed in chosen.seeds
        for noise in chosen.noise
        for variant in chosen.variants
    ]
    with contextlib.ExitStack() as stack:
        done = map(measure, cases)
        if chosen.workers > 1:
            spawn = multiprocessing.get_context("spawn")
            done = stack.enter_context(spawn.Pool(chosen.workers, torch.set_num_threads, (1,))).imap(measure, cases)
        for case, figures in zip(cases, done, strict=True):
            report.report(case.variant, figures, f"{case.noise}, seed {case.seed}")


if __name__ == "__main__":
    run_command(main)
