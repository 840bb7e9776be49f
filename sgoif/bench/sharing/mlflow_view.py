"""The columns that MLflow's table of runs shows.

MLflow's page shows no metric unless one is chosen, and keeps the choice in the browser. It does read a choice from a
tag of the experiment when the address names it (`viewStateShareKey`), as its own "Share" button makes them. So every
experiment carries such a tag, its description links to the page with it, and `make ui` prints that address.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient

VIEW = "sgoif"  # the name of the choice
NOISY = ("auc_pr", "p_at_1", "auroc", "test_accuracy", "seconds_total")
METRICS = {
    "noisy": NOISY,
    "tuning": NOISY,
    "ood": ("auroc/overall", "auroc/near", "auroc/far", "id_accuracy", "seconds_total"),
}
PARAMS = ("method", "setting", "seed")
DESCRIPTION_TAG = "mlflow.note.content"


def runs_page(experiment: str, experiment_id: str) -> str:
    """Return the address of an experiment's runs with their columns, without the server's name.

    Args:
        experiment: Its name, `<run>/<task>/<dataset>` or `<run>/tables`.
        experiment_id: Its number in the store.
    """
    view = f"&viewStateShareKey={VIEW}" if _task(experiment) in METRICS else ""
    return f"#/experiments/{experiment_id}/runs?workflowType=machine_learning{view}"


def experiment_tags(experiment: str, experiment_id: str) -> dict[str, str]:
    """Return the tags of an experiment that choose its page and its columns.

    Args:
        experiment: Its name, `<run>/<task>/<dataset>` or `<run>/tables`.
        experiment_id: Its number in the store, which the link in its description needs.
    """
    tags = {"mlflow.experimentKind": "custom_model_development"}  # else its page opens with traces of language models
    if _task(experiment) not in METRICS:
        return tags
    metrics = [f"metrics.`{name}`" for name in METRICS[_task(experiment)]]
    columns = metrics + [f"params.`{name}`" for name in PARAMS]
    view = {
        "selectedColumns": columns,
        "columnOrder": columns,
        "orderByKey": metrics[0],
        "orderByAsc": False,
        "runsHiddenMode": "SHOW_ALL",
    }
    link = f"Columns that matter: [open]({runs_page(experiment, experiment_id)})"
    return {**tags, f"mlflow.sharedViewState.{VIEW}": json.dumps(view), DESCRIPTION_TAG: link}


def choose_columns(client: MlflowClient, experiment: str, experiment_id: str) -> None:
    """Set the tags of an experiment that are missing or differ; a description that somebody wrote stays."""
    there = client.get_experiment(experiment_id).tags
    for key, value in experiment_tags(experiment, experiment_id).items():
        if there.get(key) != value and not (key == DESCRIPTION_TAG and there.get(key)):
            client.set_experiment_tag(experiment_id, key, value)


def _task(experiment: str) -> str:
    return experiment.split("/")[1]
