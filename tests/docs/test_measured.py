"""The tables and sentences of measured numbers show what is there, compare on equal seeds, and name what is not."""

import importlib
import sys

import pytest

from tests.helpers.project_copy import ROOT

sys.path.insert(0, str(ROOT / "docs" / "scripts"))
other_tables, readme_sentences, records, sentences, tables, unfinished = map(
    importlib.import_module, ("other_tables", "readme_sentences", "records", "sentences", "tables", "unfinished")
)
sys.path.remove(str(ROOT / "docs" / "scripts"))

FIRST, SECOND = ("cifar10", "n20_s0"), ("cifar10", "sym50")


class Some(records.Measured):
    """Numbers that are given instead of read: {(where, method): {seed: AUC-PR}}."""

    def __init__(self, found: dict) -> None:
        self.run = "measurement"
        self.values = {(*where, method, "auc_pr", ""): seeds for (where, method), seeds in found.items()}
        self._seeds = {}
        self.ledger = [
            {"table": "Table 4", "column": "AUPR", "row": row, "printed": printed, "measured": None}
            for row, printed in (("SG-OIF (Full)", 90.0), ("w/o Stability Gate", 60.0))
        ]


@pytest.fixture
def some() -> Some:
    """SG-OIF and AUM have two seeds, GCE one, on which it is second; INCV has another one."""
    return Some(
        {
            (FIRST, "sgoif"): {0: 0.80, 1: 0.98},
            (FIRST, "sgoif@paper"): {0: 0.70, 1: 0.97},
            (FIRST, "aum"): {0: 0.60, 1: 0.99},
            (FIRST, "gce"): {0: 0.79},
            (FIRST, "incv"): {1: 0.10},
            (FIRST, "fastif"): {0: 0.85},
            (SECOND, "sgoif"): {0: 0.90},
            (SECOND, "aum"): {0: 0.95},
        }
    )


def test_ablations_are_compared_with_the_full_method_on_the_seeds_that_all_have(some):
    assert unfinished.ablation_losses(some, "Table 4") == []
    some.values[(*FIRST, "sgoif@no_gate", "auc_pr", "")] = {0: 0.79, 2: 0.1}
    assert unfinished.ablated(some, "Table 4") == {"SG-OIF (Full)": [80.0], "w/o Stability Gate": [79.0]}
    some.values[(*FIRST, "sgoif@no_gate", "auc_pr", "")] = {0: 0.79, 1: 0.96}
    assert unfinished.ablation_losses(some, "Table 4") == [pytest.approx(2.0)], "the largest of all draws"


def test_the_readme_tells_what_ablations_lose(some):
    assert "here they have to be [run again]" in readme_sentences.ablations(some)
    for where, ablated in ((FIRST, 0.79), (("cifar100", "superclass20"), 0.75)):
        some.values |= {(*where, m, "auc_pr", "influence"): {0: v} for m, v in (("sgoif", 0.7), ("sgoif@no_gate", 0.2))}
        some.values |= {(*where, m, "auc_pr", ""): {0: v} for m, v in (("sgoif", 0.8), ("sgoif@no_gate", ablated))}
    some.ledger += [{**cell, "table": "Table 5"} for cell in some.ledger]
    told = readme_sentences.ablations(some)
    assert told.startswith("Its ablations lose 30 to 30 points of AUC-PR on CIFAR-10; here [the largest loss](")
    assert told.endswith(") is 1.0, on CIFAR-100 5.0.")
    (row,) = [line for line in other_tables.ablations(some) if "Gate" in line]
    assert row == "| w/o Stability Gate | 60.0 | 79.00 | 20.00 | 60.0 | 75.00 | 20.00 |"
    for method, second in (("sgoif", 0.98), ("sgoif@no_gate", 0.98)):
        some.values[(*FIRST, method, "auc_pr", "")][1] = second
    assert ") over two draws is 1.0, on CIFAR-100 5.0." in readme_sentences.ablations(some)
    first, *_ = other_tables.ablations(some)
    assert first == "Means of two draws of the noise; the README gives the largest loss in any draw."


def test_numbers_of_one_seed_are_counted_apart(some):
    cell = {"table": "Table 1", "column": "P@1%", "row": "AUM", "printed": 90.0}
    some.ledger = [
        {**cell, "verdict": v, "seeds": n} for v, n in (("differs", 1), ("reproduced", 3), ("not run", None))
    ]
    assert sentences.of_one_seed(some) == (1, 2)


def test_the_estimated_share_is_told_over_all_draws(some):
    some.values[(*FIRST, "", "base_rate", "")] = {0: 0.2, 1: 0.2}
    some.values[(*SECOND, "", "base_rate", "")] = {None: 0.5}
    some.values[(*FIRST, "sgoif", "extra:estimated_noise", "")] = {0: 0.21, 1: 0.10}
    some.values[(*SECOND, "sgoif", "extra:estimated_noise", "")] = {0: 0.70}
    assert sentences.estimates(some) == (
        "The estimated share of wrong labels is within 3.5 points in 1 of 3 trainings. It is furthest off in single "
        "draws of symmetric 50% (20.0 too many) and 20% · 0.0 (10.0 too few)."
    )


def test_rows_are_compared_on_the_seeds_that_all_have(some):
    assert some.compared(FIRST) == {0} and some(FIRST, "sgoif") == pytest.approx(80.0)
    assert some(FIRST, "incv") == pytest.approx(10.0), "planned with one seed: it does not hold back the others"
    assert some.best(FIRST, "auc_pr", some.blind) == (pytest.approx(79.0), "gce")
    assert sentences.leads(some, rivals=some.blind)[FIRST] == (pytest.approx(1.0), "gce")
    assert some.closest(FIRST, ("sgoif", ""), ["aum"]) == (pytest.approx(9.5), "aum"), "over the two seeds of both"
    assert some.over_own_seeds([FIRST, SECOND], "aum") == pytest.approx(100 * (0.60 + 0.99 + 0.95) / 3)
    assert some.over_own_seeds([FIRST], "gce") is None, "it lacks a seed"


def test_a_row_of_one_seed_beside_several_says_so_and_does_not_compete():
    found = {(FIRST, "sgoif"): {0: 0.9, 1: 0.7}, (FIRST, "aum"): {0: 0.6, 1: 0.6}, (FIRST, "incv"): {0: 0.95}}
    table = list(tables.by_method(Some(found), {"20%": [FIRST]}))
    assert table[2:] == ["| SG-OIF | **80.0** |", "| INCV (1 seed) | 95.0 |", "| AUM | 60.0 |"]
    found = {key: {0: seeds[0]} for key, seeds in found.items()}
    assert "| INCV | **95.0** |" in list(tables.by_method(Some(found), {"20%": [FIRST]})), "all have one"


def test_rows_over_all_seeds_lack_rivals_that_lack_one(some):
    assert list(tables.over_seeds(some))[2:] == [
        "| SG-OIF | **89.3** | **89.0** | 90.0 |",
        "| ↳ the paper's algorithm and score alone | – | 83.5 | – |",
        "| AUM | 84.7 | 79.5 | **95.0** |",
    ]


def test_a_rival_that_wins_a_column_is_shown_and_told(some):
    assert list(tables.groups(some)) == ["20%", "symmetric"]
    table = "\n".join(tables.by_method(some, tables.groups(some)))
    assert "| AUM | 60.0 | **95.0** |" in table and "| GCE | 79.0 | – |" in table
    assert "| FastIF (100 clean labels) | **85.0** | – |" in table
    told = readme_sentences.losses(some)
    assert "rivals without clean labels are ahead in 1, by up to 5.0 (AUM, symmetric 50%)." in told
    assert "FastIF, with 100 clean labels, is ahead in 1 of 1, by up to 5.0 (20% · 0.0)." in told
    assert "first in 1 of 2 settings among methods without clean labels" in "".join(readme_sentences.standing(some))


def test_the_best_of_every_column_is_shown_and_one_that_is_always():
    values = {("a", ""): [90.04, 80.0, None], ("b", ""): [90.0, 85.0, 70.0], ("c", ""): [50.0, 10.0, 10.0]}
    assert tables.strongest(values, "abc") == ["a", "b"], "b is as good as a in the first column as printed"
    assert tables.strongest(values, "abc", always="c") == ["a", "b", "c"]
    assert tables.strongest(values, "bc") == ["b"] and tables.strongest(values, "") == []


def test_the_readme_s_table_is_over_all_seeds_and_clean_labels_do_not_compete(some):
    some.values[(*FIRST, "fastif", "auc_pr", "")] = {0: 0.99, 1: 0.99}
    some.values[(*SECOND, "fastif", "auc_pr", "")] = {0: 0.99}
    table = [line.replace("\N{NO-BREAK SPACE}", " ") for line in tables.overview(some)]
    assert table[:7] == [
        "|  | CIFAR-10 | 20% | symmetric |",
        "|---|---:|---:|---:|",
        "| SG-OIF | **89.3** | **89.0** | 90.0 |",
        "| ↳ paper's algorithm | – | 83.5 | – |",
        "| AUM | 84.7 | 79.5 | **95.0** |",
        "| *with clean labels* | | | |",
        "| FastIF † | 99.0 | 99.0 | 99.0 |",
    ], "GCE and INCV lack a seed"


def test_methods_of_one_draw_stand_beside_sgoif_on_that_draw(some):
    some.values[(*SECOND, "gce", "auc_pr", "")] = {0: 0.91}
    assert tables.methods_of_one_draw(some) == ["incv", "gce", "fastif"]
    assert list(tables.one_draw(some))[2:] == [
        "| SG-OIF | 80.0 | 90.0 |",
        "| GCE | 79.0 | **91.0** |",
        "| FastIF (100 clean labels) | **85.0** | – |",
    ], "INCV has another draw, AUM more than one"
    (told,) = readme_sentences.one_draw(some)
    assert told.endswith("(docs/results/measured.md#one-draw) GCE has 79.0, SG-OIF 80.0 and AUM 60.0.")
    found = {(where, m): some.seeds_of(where, m) for where in (FIRST, SECOND) for m in ("sgoif", "aum", "gce")}
    found |= {(w, m): {0: v} for w in (FIRST, SECOND) for m, v in (("glc", 0.97), ("sgoif_trusted", 0.95))}
    (told,) = readme_sentences.one_draw(Some(found))
    assert "SG-OIF 80.0 and AUM 60.0 (GLC 97.0 and SG-OIF 95.0 with 1,000 clean labels each)." in told


def test_what_is_not_run_is_named(some):
    told = unfinished.missing(some)
    for words in (
        "Co-Teaching",
        "DivideMix",
        "17 settings of CIFAR-10",
        "CIFAR-100",
        "Imagenette",
        "all 3 seeds of some rivals",
    ):
        assert words in told
    assert "GCE in 1 setting" in told and "AUM" not in told and told.endswith("ablations")
    assert list(tables.detection_100(some)) == ["Not run yet."] == list(tables.clean_labels(some))
    assert unfinished.seeds_in_words(some) == (
        "the tables show 1 seed, which all rows have; SG-OIF and some rivals have 2; counts of first places and means "
        "over seeds use these"
    )


def test_columns_of_more_seeds_are_named():
    frozen = ("imagenette", "frozen_noisy1")
    some = Some({(FIRST, "sgoif"): {0: 0.8, 1: 0.6}, (FIRST, "aum"): {0: 0.8}, (frozen, "sgoif"): {0: 0.9, 1: 0.9}})
    assert unfinished.seeds_compared(some) == {"CIFAR-10": 1, "Imagenette, frozen": 2}


def test_a_number_is_counted_with_the_first_run_that_tells_something_of_it(monkeypatch):
    ledgers = {"measurement": ["differs", "not run", "not run"], "openood": ["not run", "stand-in", "not run"]}
    cells = {run: [{"verdict": v, "table": "Table 1", "of": run} for v in found] for run, found in ledgers.items()}
    cells["ood-trained"] = [{"verdict": "reproduced", "table": "Table 1", "of": "ood-trained"} for _ in range(3)]
    monkeypatch.setattr(records, "_ledger", cells.get)
    found = records.Measured.__new__(records.Measured)
    found.run = "measurement"
    assert [c["of"] for c in found.ledger] == ["measurement", "openood", "ood-trained"]
    counts = {verdict: n for verdict, n in found.verdicts().items() if n}
    assert counts == {"differs": 1, "stand-in": 1, "reproduced": 1}


def test_the_readme_tells_of_a_rival_that_is_ahead_with_the_same_clean_labels():
    found = {(where, "sgoif"): {0: 0.80} for where in (FIRST, SECOND)}
    found |= {(where, "sgoif_trusted"): {0: 0.95} for where in (FIRST, SECOND)}
    found |= {(where, "trusted_probe"): {0: 0.90} for where in (FIRST, SECOND)}
    found |= {(FIRST, "glc"): {0: 0.94}, (SECOND, "glc"): {0: 0.97}}
    some = Some(found)
    told = readme_sentences.losses(some)
    assert "With 1,000 clean labels for both, GLC is ahead in 1 of 2, by up to 2.0 (symmetric 50%)." in told
    del some.values[(*SECOND, "glc", "auc_pr", "")]
    assert "With 1,000 clean labels" not in readme_sentences.losses(some)


def test_methods_with_clean_labels_are_compared_in_words_where_both_are():
    some = Some(
        {
            (FIRST, "sgoif"): {0: 0.80},
            (FIRST, "sgoif_trusted"): {0: 0.95},
            (FIRST, "trusted_probe"): {0: 0.90},
            (SECOND, "sgoif"): {0: 0.90},
            (SECOND, "sgoif_trusted"): {0: 0.97},
            (SECOND, "trusted_probe"): {0: 0.99},
        }
    )
    (told,) = tables.clean_labels(some)
    assert " ".join(told.split()) == (
        "* **SG-OIF beside probe**: ahead in 1 of 2 settings, by up to 5.0 (20% · 0.0), and behind in 1, by up to 2.0 "
        "(symmetric 50%)."
    )


def test_long_training_is_told_beside_the_chosen_and_the_best_scores_of_rivals():
    long = Some(
        {
            (FIRST, "sgoif"): {0: 0.90},
            (FIRST, "aum"): {0: 0.80},
            (SECOND, "sgoif"): {0: 0.70},
            (SECOND, "aum"): {0: 0.75},
        }
    )
    for where in (FIRST, SECOND):
        long.values[(*where, "", "base_rate", "")] = {None: 0.5}
        long.values[(*where, "sgoif", "extra:estimated_noise", "")] = {0: 0.25}
        long.values[(*where, "aum", "auc_pr", "all")] = {0: 0.95}
    some = Some({})
    some.other = {"measurement-long": long}.__getitem__
    told = " ".join(" ".join(sentences.long_training(some)).split())
    assert "is first in 1 of 2: 20% · 0.0 (by 10.0, AUM). It is behind at symmetric 50% (by 5.0, AUM)." in told
    assert "it is first in none: behind at 20% · 0.0 (by 5.0, AUM) and symmetric 50% (by 25.0, AUM)." in told
    assert "20% · 0.0 50 / 25, symmetric 50% 50 / 25." in told
    assert readme_sentences.long_training(some) == (
        "After [100 epochs of a ResNet-18](docs/results/measured.md#long-training) it is first in 1 of 2 and behind at "
        "symmetric 50% (by 5.0, AUM); few rivals that train a network of their own were run there."
    ), "README says the same"
    long.values[(*SECOND, "sgoif", "auc_pr", "")] = {0: 0.80}
    assert "it is first in 2 of 2; few rivals" in readme_sentences.long_training(some)


def test_a_second_training_is_told_where_it_gains_and_where_it_loses():
    some = Some(
        {
            (FIRST, "sgoif"): {0: 0.80, 1: 0.60},
            (FIRST, "sgoif@twice"): {0: 0.83},
            (FIRST, "aum"): {0: 0.82, 1: 0.10},
            (SECOND, "sgoif"): {0: 0.90},
            (SECOND, "sgoif@twice"): {0: 0.84},
            (SECOND, "aum"): {0: 0.89},
        }
    )
    assert sentences.gains(some) == {FIRST: pytest.approx(3.0), SECOND: pytest.approx(-6.0)}, "over the seed of both"
    assert "sgoif@twice" not in some.rivals, "a form of SG-OIF is no rival of it"
    assert "| ↳ two trainings | **83.0** | 84.0 |" in "\n".join(tables.by_method(some, tables.groups(some)))
    (told,) = sentences.two_trainings(some)
    assert " ".join(told.split()) == (
        "They are better than one in 1 of 2 settings, by up to 3.0 (20% · 0.0), and lose 1.5 in the mean. They are "
        "worse at symmetric 50% (by 6.0). Of 2 single trainings the worst loses 6.0 (symmetric 50%, seed 0). Among "
        "methods without clean labels they are first in 1 of 2."
    )
    for where in (FIRST, SECOND):
        del some.values[(*where, "sgoif@twice", "auc_pr", "")]
    assert list(sentences.two_trainings(some)) == ["Not run yet."]
    assert sentences.where_most(list("abcdefg")) == "in 7, most at a, b, c, d and e"


def test_the_readme_tells_the_mean_of_all_draws_beside_a_rival_that_has_them(some, monkeypatch):
    told = readme_sentences.mean_in_words(some)
    assert "mean AUC-PR of 89.3% (2 settings of noise, 2 seeds each)" in told
    assert "The best of 1 rival without clean labels on the same seeds, AUM, has 84.7%." in told, (
        "GCE lacks a seed and a setting"
    )
    (draws,) = readme_sentences.draws(some)
    assert "at 20% · 0.0 it has 80.0 and 98.0 in two draws of the noise; in the worst of them GCE has 79.0." in draws
    assert "Two trainings" not in draws
    some.values[(*FIRST, "sgoif@twice", "auc_pr", "")] = {0: 0.85, 1: 0.90}
    told = next(readme_sentences.draws(some))
    assert (
        "Two trainings cost twice as much, are worse than one in 1 of 1 settings, and lose 8.0 in one draw of" in told
    )
    monkeypatch.setattr(readme_sentences, "SAME_LABELS", {FIRST[0]})
    assert "and lose 1.5 at 20% · 0.0." in next(readme_sentences.draws(some)), "there are no draws"
    del some.values[(*FIRST, "sgoif", "auc_pr", "")][1]
    assert not [*readme_sentences.draws(some)], "one draw"


def test_rows_of_the_readme_have_short_titles_that_stay_on_one_line():
    titles = {
        ("fastif", "", "FastIF (100 clean labels)"): "FastIF †",
        ("glc", "", "GLC (1,000 clean labels)"): "GLC ‡",
        ("sgoif", "latent", "↳ its class model alone"): "↳ class model alone",
        ("sgoif", "", "SG-OIF"): "SG-OIF",
        ("aum@all", "", "AUM, all of training"): "AUM, all of training",
    }
    for line, title in titles.items():
        found = tables.shorter(*line)
        assert found.split("\N{NO-BREAK SPACE}") == title.split(" ") and " " not in found
