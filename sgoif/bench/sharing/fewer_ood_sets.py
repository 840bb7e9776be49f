"""Records of OOD cells under a configuration with fewer OOD sets than they were measured with.

The scores of a set do not depend on the others, so only the means over near, far and all sets are computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sgoif.bench.evaluation.metric_record import MetricRecord
from sgoif.bench.evaluation.metrics import OOD_METRICS, ood_means

GROUPS = ("near", "far", "overall")


def covers(measured: Any, planned: Any) -> bool:
    """Tell whether a list of OOD sets holds all that are planned, in their order."""
    lists = isinstance(measured, Sequence) and isinstance(planned, Sequence)
    return lists and [name for name in measured if name in planned] == list(planned)


def fewer_ood_sets(records: Sequence[MetricRecord], spec: Mapping[str, Any]) -> list[MetricRecord]:
    """Leave out the sets that a configuration does not have, and take the means over the others.

    Args:
        records: All records of one OOD cell.
        spec: The configuration of its ID dataset, with `near` and `far`.

    Returns:
        The records in their order; the same ones if no set is left out. Means of scores that do not rank are left out
        with a set, since their values for single sets are not recorded.
    """
    planned = [*spec["near"], *spec["far"]]
    values = {r["metric"]: r["value"] for r in records if not r["variant"] and r["value"] is not None}
    measured = [metric.partition(":")[2] for metric in values if metric.startswith("n_ood:")]
    if set(measured) <= set(planned):
        return list(records)
    per_set = {name: {m: values[f"{m}:{name}"] for m in OOD_METRICS} for name in planned}
    means = ood_means(per_set, spec["near"], spec["far"])
    return list(_kept(records, set(measured) - set(planned), means))


def _kept(
    records: Sequence[MetricRecord], gone: set[str], means: Mapping[str, Mapping[str, float]]
) -> Iterator[MetricRecord]:
    for record in records:
        metric, _, group = record["metric"].partition(":")
        if metric in OOD_METRICS and group in GROUPS:
            if not record["variant"] and group in means:
                yield {**record, "value": means[group][metric]}
        elif group not in gone:
            yield record
