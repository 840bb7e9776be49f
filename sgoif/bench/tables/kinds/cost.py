"""Builds tables of measured cost: seconds, memory and overheads."""

from __future__ import annotations

from sgoif.bench.tables.block import make_block, pooled_field
from sgoif.bench.tables.captions import NOT_GIVEN, OVERHEAD
from sgoif.bench.tables.model import Column, Table
from sgoif.bench.tables.source import Source

OVERHEAD_OOD = (
    "Overhead (×): wall-clock before the first score over that of plain training. Marginal: a plain run that the "
    "method reads is there anyway; stand-alone: it is counted."
)


MEMORY = (
    "memory: peak of the process on a CPU, of the device on a GPU, over that of plain training. On a GPU the peak of "
    "plain training contains cuDNN's search for algorithms, so that a ratio below 1 is no saving."
)


def cost(source: Source) -> Table:
    """Build a table of cost: means over settings and seeds, one block for each dataset."""
    task = source.layout.task
    rows = source.methods()
    columns = [
        Column("seconds", "train", "seconds_train", "lower", "seconds"),
        Column("seconds", "fit", "seconds_fit", "lower", "seconds"),
        Column("seconds", "score", "seconds_score", "lower", "seconds"),
        Column("seconds", "retrain", "seconds_retrain", "lower", "seconds"),
        Column("seconds", "total", "seconds_total", "lower", "seconds"),
        Column("seconds", "CPU", "cpu_seconds_total", "lower", "seconds"),
        Column("memory", "peak MB", "peak_memory_mb", "lower", "megabytes"),
        Column("overhead", "marginal", "overhead_marginal", "lower", "times"),
        Column("overhead", "stand-alone", "overhead_standalone", "lower", "times"),
        Column("overhead", "stand-alone CPU", "overhead_cpu", "lower", "times"),
        Column("overhead", "with retraining", "overhead_cleaned", "lower", "times"),
        Column("overhead", "memory", "overhead_memory", "lower", "times"),
        Column("overhead", "stand-alone passes", "overhead_passes", "lower", "times"),
    ]
    blocks = []
    for dataset in dict.fromkeys(p.dataset for p in source.panels):
        panels = [p for p in source.panels if p.dataset == dataset]
        fields = [pooled_field(source, panels, column) for column in columns]
        used = [f for f in fields if any(f.entry(m).mean is not None for _, m in rows)]
        blocks.append(make_block(panels[0].title, used, rows, task))
    seeds = sorted({len(p.seeds) for p in source.panels})
    caption = [
        f"Measured cost, mean over all settings of the dataset and {' to '.join(map(str, seeds))} seed(s)."
        if seeds else "",
        OVERHEAD if task == "noisy" else OVERHEAD_OOD,
        "stand-alone CPU: the same in CPU seconds, which do not grow when other jobs share the machine's cores.",
        "stand-alone passes: the same in images passed through a network (a training step counts three), which no "
        "machine changes; networks of another size count as many.",
        "total: everything the cell did, what it writes down for other methods included. Nothing is marked: the "
        "cheapest method is not the best.",
        MEMORY if task == "noisy" else "",
        NOT_GIVEN,
    ]  # fmt: skip
    return source.table(blocks, caption)
