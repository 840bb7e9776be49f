"""Label issues of features, shared by the tests of all bridges."""

import pytest

from examples.digits import digits, flip_labels
from sgoif import find_label_issues
from sgoif.features.find import FeatureIssues


@pytest.fixture(scope="package")
def digits_issues() -> FeatureIssues:
    x, truth, *_ = digits()
    given, _ = flip_labels(truth[:200], 0.2, seed=0)
    return find_label_issues(x[:200].flatten(1), [f"digit {label}" for label in given.tolist()])
