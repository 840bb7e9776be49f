"""How the time of watched and plain training grows: with the number of images, of anchors, and the size of the network.

    python -m benchmarks.scaling [--rounds 2] [--out scaling.json]

CIFAR-10, batch 512, the step as a CUDA graph (not compiled: every network would be compiled anew). Plain and watched
runs of three epochs take turns; the first epoch of each does not count. Networks are compared on the middle
one of `--n`, with the fewest anchors.
"""

import functools
import statistics

from benchmarks.common import Bench, parser, run_command, turns
from sgoif.training.models import more_models, resnet9

WIDTHS = {"resnet9 x32": 32, "resnet9 x128": 128}  # of the first layer, 64 in `resnet9`; the head sees eight times that


def main(arguments: list[str] | None = None) -> None:
    with more_models({name: functools.partial(resnet9, width=width) for name, width in WIDTHS.items()}):
        measure(arguments)


def measure(arguments: list[str] | None) -> None:
    """Time plain and watched trainings, with the widths among the models."""
    options = parser(__doc__, limit=45)
    options.add_argument("--rounds", type=int, default=2, help="pairs of a plain and a watched run")
    options.add_argument("--n", type=int, nargs="+", default=[10_000, 25_000, 50_000])
    options.add_argument("--anchors", type=int, nargs="+", default=[10, 50, 100])
    options.add_argument("--models", nargs="+", default=["resnet9 x32", "resnet9", "resnet9 x128", "resnet18"])
    bench = Bench("scaling", options.parse_args(arguments))
    options = bench.options
    most, middle, few = max(options.n), sorted(options.n)[len(options.n) // 2], min(options.anchors)
    points = [("n", n, (n, few, options.model)) for n in options.n]
    points += [("K", k, (most, k, options.model)) for k in options.anchors]
    points += [("model", name, (middle, few, name)) for name in options.models]
    done: dict[tuple, dict] = {}  # some points lie on two lines
    for kind, value, point in points:
        if point not in done and bench.left() > 0:
            done[point] = pair(bench, *point)
        bench.report(str(value), done.get(point, {"left_out": f"no time left of {options.limit:g} s"}), kind)


def pair(bench: Bench, n: int, anchors: int, model: str) -> dict:
    """Median seconds of an epoch, plain and watched, and what watching adds to a step."""
    recipe = {"model": model, "epochs": 3, "graph": True, "compile": False}
    found, net = turns(bench, bench.options.rounds, {"anchors": anchors}, n, **recipe)
    laps = {kind: [lap for s in sessions for lap in s.laps["train"][1:]] for kind, sessions in found.items()}
    one, two = (statistics.median(laps[kind]) for kind in ("plain", "watched"))
    batches = bench.task(n).batches()
    return {
        "n": len(batches.images),
        "K": anchors,
        "model": model,
        "parameters": sum(p.numel() for p in net.parameters()),
        "head_width": net.head.in_features,
        "plain_epoch_seconds": one,
        "watched_epoch_seconds": two,
        "ratio": two / one,
        "added_ms_per_step": 1000 * (two - one) / batches.steps,
        "epochs": laps,
    }


if __name__ == "__main__":
    run_command(main)
