"""Parts of the page: class names as people write them, and typical examples of a class."""

import numpy as np

from sgoif.scan.page.class_names import readable_names
from sgoif.scan.page.pictures import typical_examples


def test_names_of_folders_become_readable():
    folders = ["golden_retriever", "001.Black_footed_Albatross", "n02085620-Chihuahua", "7", "12_a", "3 dogs"]
    better = ["golden retriever", "Black footed Albatross", "Chihuahua", "7", "a", "dogs"]
    assert readable_names(folders) == better


def test_names_that_would_be_equal_or_empty_stay():
    same = ["1_cat", "2_Cat", "__", "a_b", "a b", "n02085620"]
    assert readable_names(same) == same


def test_typical_examples_are_nearest_to_the_middle_and_not_suspicious():
    rng = np.random.default_rng(0)
    angle = np.r_[rng.normal(0, 0.3, 50), rng.normal(2, 0.3, 50)]
    features = np.c_[np.cos(angle), np.sin(angle)] * rng.uniform(1, 9, (100, 1))
    labels = np.arange(100) // 50
    angle_of_middle = [np.median(angle[:50]), np.median(angle[50:])]
    suspicious = np.zeros(100, bool)
    first = typical_examples(features, labels, suspicious, 3)
    assert all(np.abs(angle[rows] - m).max() < 0.1 for rows, m in zip(first, angle_of_middle, strict=True))
    suspicious[first[0]] = True
    second = typical_examples(features, labels, suspicious, 3)
    assert not set(first[0]) & set(second[0]) and (labels[second[0]] == 0).all()


def test_a_class_of_suspicious_examples_alone_shows_one_of_them():
    found = typical_examples(np.eye(4), np.array([0, 0, 2, 2]), np.array([True, True, False, False]), 1)
    assert [len(rows) for rows in found] == [1, 0, 1] and found[0][0] in (0, 1)
