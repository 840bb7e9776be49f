"""The hint of an error message about an unknown name."""

from __future__ import annotations

from sgoif.utils.suggest import suggest


def test_similar_names_come_first_whatever_their_case():
    assert suggest("mnits", ["MNIST", "cifar10", "KMNIST"]) == "did you mean MNIST or KMNIST?"


def test_all_names_where_none_is_similar():
    assert suggest("?", ["b", "A"]) == "there are: A, b"
    assert suggest("x", []) == "there are: none"
