"""A run with its tables, which the tests of tables share."""

import pytest

from sgoif.bench import tables
from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.evaluation.summary import summarise
from tests.helpers.fake_runs import Run, config


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A whole run: cells, metrics, summary, tables."""
    run = Run(tmp_path_factory.mktemp("run"))
    run.fill_noisy()
    run.fill_ood()
    for task, dataset in (("noisy", "digits"), ("ood", "digits7")):
        evaluate(run.root, run.data, task, dataset, config())
    run.records = summarise(run.root, config())
    run.paths = tables.write_tables(run.root, config())
    return run
