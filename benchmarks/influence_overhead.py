"""What watching costs: time against plain training, memory against K, and scoring against post-hoc packages.

    python -m benchmarks.influence_overhead [--rounds 3] [--out influence_overhead.json]

ResNet-9 on CIFAR-10 by the recipe of configs/cifar.yaml (compiled and captured on a GPU); watched is the detector that
the benchmark runs, `baselines/noisy/sgoif.py`, by timer: training, reading the scores, estimating
how many labels are wrong. Plain and watched runs take turns in one process. Scope `all` is measured beside the same
engine without compiling, which it needs. The packages score the training images with the network of the last plain
run; SG-OIF's time for the same is everything its run takes beyond the plain one, but the estimate.
"""

import functools
import importlib
import statistics
import traceback
from collections.abc import Callable

import torch
from torch import nn

from benchmarks import posthoc
from benchmarks.common import Bench, TimeUp, parser, plain, run_command, turns, watched
from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.training.cost.peak_memory import PeakMemory

PARTS = ("head", "packages", "memory", "all")


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__, limit=150)
    options.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options.add_argument("--rounds", type=int, default=3, help="pairs of a plain and a watched run")
    options.add_argument("--epochs", type=int, help="left out: the recipe's 16")
    options.add_argument("--deep-epochs", type=int, default=4, help="epochs of a run with scope all, one to warm up")
    options.add_argument("--anchors", type=int, nargs="+", default=[10, 50, 100], help="K of the memory figures")
    options.add_argument("--subset", type=int, default=2048, help="images for kronfluence on all layers")
    options.add_argument(
        "--part-limit", type=float, default=30, help="seconds that scope all and each package get at most"
    )
    bench = Bench("influence_overhead", options.parse_args(arguments))
    chosen, net = bench.options.parts, None
    if min(bench.options.subset, bench.options.examples) < 2 * bench.options.batch:
        raise SystemExit("error: --subset must hold at least two batches, to tell what one more costs")
    if {"head", "packages"} & set(chosen):
        net = head(bench)
    if "packages" in chosen:
        packages(bench, net)
    if "memory" in chosen and bench.left() > 0:
        memory(bench)
    if "all" in chosen:
        bench.report("all", guarded(bench, functools.partial(deep, bench)))


def head(bench: Bench) -> nn.Module:
    """Scope head over the whole recipe: medians by timer, and watched over plain training with what comes after.
    Returns a plainly trained network."""
    for run in (plain, watched):  # compiles, chooses algorithms
        run(bench.task(epochs=2))
    found, net = turns(bench, bench.options.rounds, {}, epochs=bench.options.epochs or bench.recipe.epochs)
    runs = {kind: [session.timers.seconds for session in sessions] for kind, sessions in found.items()}
    base, mine = (
        {name: statistics.median(run[name] for run in some) for name in some[0]}
        for some in (runs["plain"], runs["watched"])
    )
    training, upto = base["train"], mine["train"]
    figures = {
        "plain_seconds": base,
        "watched_seconds": mine,
        "watching": upto / training,
        "with_reading": (upto + mine["read"]) / training,
        "with_estimate": (upto + mine["read"] + mine["estimate"]) / training,
        "all_of_it": sum(mine.values()) / sum(base.values()),
        "runs": runs,
    }
    bench.report("head", figures)
    return net


def deep(bench: Bench) -> dict:
    """Scope all beside plain training by the same engine: a CUDA graph of the network as it is, since hooks do not fire
    inside a compiled one. The first epoch warms up."""
    found, _ = turns(
        bench, bench.options.rounds, {"scope": "all"}, epochs=bench.options.deep_epochs, graph=True, compile=False
    )
    laps = {kind: [lap for session in some for lap in session.laps["train"][1:]] for kind, some in found.items()}
    plainly, watching = (statistics.median(laps[kind]) for kind in ("plain", "watched"))
    return {
        "plain_epoch_seconds": plainly,
        "watched_epoch_seconds": watching,
        "watching": watching / plainly,
        "epochs": laps,
    }


def guarded(bench: Bench, measure: Callable[[], dict]) -> dict:
    """What `measure` finds, or why it found nothing: neither a slow part nor a failing one takes the others along."""
    limit = min(bench.options.part_limit, bench.left())
    try:
        with bench.at_most(limit):
            return measure()
    except TimeUp:
        return {"stopped_after_seconds": max(limit, 0.0)}
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}


def memory(bench: Bench) -> None:
    """What SG-OIF holds, and how much higher the peaks of two watched epochs are than of two plain ones, against K."""
    base = peaks(bench, plain)
    bench.report("plain", base, "memory_mb")
    for k in bench.options.anchors:
        mine = peaks(bench, watched, anchors=k)
        more = {f"more_{name}": mine[name] - base[name] for name in mine}
        bench.report(f"K={k}", {**held(bench, k), **mine, **more}, "memory_mb")


def peaks(bench: Bench, run: Callable, **params) -> dict[str, float]:
    task = bench.task(epochs=2)
    if bench.device.type == "cuda":
        torch.cuda.empty_cache()
    with PeakMemory(bench.device) as used:
        run(task, **params)
    found = {"allocated": used.mb}
    if bench.device.type == "cuda":  # the memory of a captured step is kept for it, which `allocated` does not show
        found["reserved"] = torch.cuda.max_memory_reserved() / 2**20
    return found


def held(bench: Bench, k: int) -> dict[str, float]:
    """Megabytes of directions, anchors and curvature. `per_dKr`: numbers held beside the curvature, over d (K + r)."""
    task = bench.task()
    learner, config = task.learner(task.batches()), InfluenceConfig(anchors=k)
    influence = OnlineInfluence(learner.net, len(task.train), 10, config, total_steps=learner.total_steps)
    parts = [(name, t) for name, t in influence.state_dict()["parts"].items() if isinstance(t, torch.Tensor)]
    bank = [t.numel() for name, t in parts if not name.startswith("curvature")]
    influence.close()
    return {
        "state": sum(t.nbytes for _, t in parts) / 2**20,
        "per_dKr": sum(bank) / (influence.dimension * (k + config.rank)),
    }


def packages(bench: Bench, net: nn.Module) -> None:
    """Seconds to score every training image, and how many times SG-OIF's own that is."""
    base, mine = bench.figures["head"]["plain_seconds"], bench.figures["head"]["watched_seconds"]
    added = {"watching": mine["train"] - base["train"], "reading": mine["read"], "rest": mine["rest"] - base["rest"]}
    own = sum(added.values())
    bench.report("SG-OIF, added to training", {"seconds": own, **added}, "score_all")
    n, step = len(bench.train), bench.recipe.batch_size
    feed, few, first = (
        posthoc.Feed(bench.train, bench.labels, c, bench.check) for c in (n, bench.options.subset, step)
    )

    def tracin(checkpoints: int, repeats: int) -> dict:
        posthoc.tracin(net, first, 1, step)
        runs = [posthoc.tracin(net, feed, checkpoints, 8 * step) for _ in range(repeats)]
        return {"seconds": statistics.median(runs), "runs": runs}

    def ekfac_last_layer() -> dict:
        posthoc.ekfac(net, first, True, step)
        stages = posthoc.ekfac(net, feed, True, 8 * step).seconds
        return {"seconds": sum(stages.values()), "stages": stages}

    def ekfac_all_layers() -> dict:
        stages = posthoc.ekfac(net, few, False, step)
        seconds = posthoc.extrapolated(stages, len(few), n, step)
        return {"seconds": seconds, "extrapolated_from": len(few), "stages": stages.seconds, "batch": stages.per_batch}

    several = bench.recipe.checkpoints
    rivals = {
        "captum TracInCPFast, last layer, 1 checkpoint": lambda: tracin(1, 3),
        f"captum TracInCPFast, last layer, {several} checkpoints": lambda: tracin(several, 1),
        "kronfluence EK-FAC, last layer": ekfac_last_layer,
        "kronfluence EK-FAC, all layers": ekfac_all_layers,
    }
    for name, measure in rivals.items():
        try:
            importlib.import_module(name.split()[0])  # not against the clock
        except ImportError as error:
            bench.report(name, {"left_out": str(error)}, "score_all")
            continue
        found = guarded(bench, measure)
        if "seconds" in found and own > 0:
            found["times_sgoif"] = found["seconds"] / own
        bench.report(name, found, "score_all")


if __name__ == "__main__":
    run_command(main)
