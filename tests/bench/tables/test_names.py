"""Titles, groups and their order in tables come from the classes of the methods."""

from __future__ import annotations

import pytest

from sgoif.bench.methods import registry
from sgoif.bench.methods.declaration import MethodDeclaration
from sgoif.bench.tables import names

PRINTED = {  # the published tables: (group, [(method, title)])
    "noisy": [
        ("Methods of the paper", [
            ("incv", "INCV"), ("mixup", "Mixup"), ("sce", "SCE-loss"), ("mentornet", "MentorNet"),
            ("coteaching", "Co-Teaching"), ("fastif", "FastIF †"), ("tracin", "TracIn"), ("confident_learning", "CL"),
            ("sgoif", "SG-OIF"),
        ]),
        ("Given all clean labels that were set aside", [
            ("mentornet@data_driven", "MentorNet, data-driven †"), ("fastif@all_trusted", "FastIF, all trusted †"),
            ("sgoif_trusted", "SG-OIF, trusted †"),
        ]),
        ("Free detectors", [
            ("random", "random"), ("loss", "last-epoch loss"), ("margin", "last-epoch margin"),
            ("aum", "mean margin (AUM)"), ("oof_self_confidence", "out-of-fold self-confidence"),
        ]),
        ("Others", [
            ("sgoif@no_gate", "SG-OIF (without the gate)"), ("newcomer", "newcomer"), ("plain", "plain training"),
        ]),
    ],
    "ood": [
        ("Anomaly detection", [
            ("cutpaste", "CutPaste"), ("draem", "DRAEM"), ("patchcore", "PatchCore"), ("gram", "Gram"),
        ]),
        ("Energy and gradient", [
            ("ebo", "EBO"), ("gradnorm", "GradNorm"), ("react", "ReAct"), ("mls", "MLS"), ("klm", "KLM"),
            ("dice", "DICE"),
        ]),
        ("Features", [("vim", "ViM"), ("knn", "KNN")]),
        ("Generative (so called)", [
            ("godin", "G-ODIN"), ("csi", "CSI"), ("arpl", "ARPL"), ("mos", "MOS"), ("opengan", "OpenGAN"),
            ("vos", "VOS"),
        ]),
        ("Augmentation (so called)", [("logitnorm", "LogitNorm"), ("udg", "UDG"), ("pixmix", "PixMix")]),
        ("Ours", [("sgoif", "SG-OIF")]),
        ("Free baseline", [("msp", "MSP")]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("task", PRINTED)
def test_rows_stand_as_in_the_published_tables(task):
    rows = [(group, method) for group, methods in PRINTED[task] for method, _ in methods]
    shuffled = (
        [m for _, m in reversed(rows)] if task == "ood" else [*(m for _, m in rows[3::-1]), *(m for _, m in rows[4:])]
    )
    assert names.grouped(task, shuffled) == rows
    assert [(m, names.title(task, m)) for _, m in rows] == [pair for _, methods in PRINTED[task] for pair in methods]


def test_rows_that_are_given_more_are_not_ranked():
    rows = [m for _, methods in PRINTED["noisy"] for m, _ in methods]
    unranked = [m for m in rows if not names.is_ranked("noisy", m)]
    assert unranked == ["mentornet@data_driven", "fastif@all_trusted", "sgoif_trusted"]
    assert names.grouped("tuning", unranked) == names.grouped("noisy", unranked)


def test_new_methods_follow_those_of_the_paper_and_new_groups_the_known_ones(monkeypatch):
    new = {
        "a": MethodDeclaration("A", "Free detectors", name="a"),
        "b": MethodDeclaration("B", "My group", name="b"),
        "c": MethodDeclaration("C", name="c"),
    }
    known = registry.declaration
    monkeypatch.setattr(registry, "available", lambda task: ("loss", "random", *new))
    monkeypatch.setattr(registry, "declaration", lambda task, name: new.get(name) or known(task, name))
    rows = names.grouped("noisy", ["c", "b", "a", "loss", "random"])
    free = "Free detectors"
    assert rows == [(free, "random"), (free, "loss"), (free, "a"), ("My group", "b"), ("Others", "c")]


def test_a_variant_is_titled_by_what_it_changes_and_never_by_its_key():
    assert names.title("noisy", "fastif@late_layers") == "FastIF † (late layers)"
    assert names.title("noisy", "newcomer@fast") == "newcomer (fast)"


def test_stand_in_sets_carry_a_mark():
    assert [names.set_title(s) for s in ("svhn", "svhn10k_recropped", "mine")] == ["SVHN", "SVHN*", "mine"]
