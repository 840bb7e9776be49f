"""Scores as tables."""

import importlib.util
from dataclasses import dataclass

import pytest
import torch

from sgoif import InfluenceError, InfluenceResult
from sgoif.applications import triage
from sgoif.interop import optional
from sgoif.interop.dataframes import to_huggingface, to_pandas


@dataclass
class Empty:
    """A result that says nothing of single examples."""

    count: int = 0


def made(n: int = 40):
    """A result with four suspicious examples, and its triage."""
    generator = torch.Generator().manual_seed(0)
    score = torch.randn(n, generator=generator) * 0.1 - 1
    score[:4] = torch.tensor([3.0, 2.0, 4.0, 2.5])
    ones = torch.ones(n)
    result = InfluenceResult(score, ones, ones, 0.5 * ones, 3 * ones.long(), ones.bool(), ones, score[None])
    given = torch.arange(n) % 2
    return result, triage(result, given, torch.rand(n, 2, generator=generator).softmax(1))


def test_pandas_has_one_row_per_example_in_data_set_order(tmp_path):
    result, found = made()
    frame = to_pandas(result, found, path=[f"{i}.png" for i in range(40)])
    assert len(frame) == 40 and frame.index.name == "example"
    assert {"score", "confidence", "half_width", "visits", "rank", "flagged", "suggested", "path"} <= set(frame)
    assert "epoch_scores" not in frame and "order" not in frame
    assert frame["rank"].iloc[2] == 0 and frame.sort_values("rank")["score"].is_monotonic_decreasing
    frame.to_parquet(tmp_path / "scores.parquet")
    import pandas

    pandas.testing.assert_frame_equal(pandas.read_parquet(tmp_path / "scores.parquet"), frame)


def test_rows_are_in_data_set_order_whatever_index_a_series_has():
    import pandas

    shuffled = pandas.Series(range(40), index=range(39, -1, -1))
    frame = to_pandas(made()[0], position=shuffled, doubled=2 * shuffled)
    assert frame.index.tolist() == list(range(40)) == frame["position"].tolist()
    assert (frame["doubled"] == 2 * frame["position"]).all()


def test_label_issues_of_features_are_columns_too(digits_issues):
    frame = to_pandas(digits_issues)
    assert {"rank", "suspicion", "flagged", "labels", "suggested", "probability"} == set(frame) and len(frame) == 200
    assert frame["rank"].to_numpy()[digits_issues.order[0]] == 0
    with pytest.raises(InfluenceError, match=r"a Empty has no column of shape \[N\]"):
        to_pandas(Empty())


def test_columns_of_other_lengths_are_refused():
    with pytest.raises(InfluenceError, match=r"different lengths.*'path': 3"):
        to_pandas(made()[0], path=["a", "b", "c"])


def test_hugging_face_data_set():
    if importlib.util.find_spec("datasets") is None:
        with pytest.raises(InfluenceError, match=r"datasets is not installed.*pip install datasets"):
            to_huggingface(*made())
        pytest.skip("datasets is not installed here; the message that says so was checked instead")
    data = to_huggingface(*made())
    assert data.num_rows == 40 and data[2]["rank"] == 0 and data[2]["flagged"] is True


def test_a_missing_library_is_named():
    with pytest.raises(InfluenceError, match=r"no_such_library is not installed.*pip install no_such_library"):
        optional.import_optional("no_such_library.inner")
