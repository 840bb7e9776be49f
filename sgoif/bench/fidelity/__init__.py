"""Fidelity of attributions to retraining: is it influence?

`problem` draws training images, wrong labels and targets, `retrain` trains many small networks at once, `truth` keeps
what retraining says, `methods` are the attributions with their costs, `measure` compares the two, `certificate` asks
how far the scores' own error bars hold, `cells` reads and writes the files, `table` builds the table. Reads
data/<dataset>, writes results/<run>/fidelity/<name>/seed<seed> and tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sgoif.bench.config.values import digest
from sgoif.bench.execution.fingerprint import source_hash


def fingerprint(spec: Mapping[str, Any]) -> str:
    """Return a hash that changes exactly when a measurement has to be made again; needs no torch."""
    return digest([dict(spec), source_hash("sgoif.bench.fidelity.cells")])
