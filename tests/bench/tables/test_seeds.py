"""The column of seeds: there where rows differ, with the reason; nowhere else."""

from sgoif.bench.tables.model import Block, Column, Entry, Row
from sgoif.bench.tables.seeds import add_seeds_columns

NOTES = ["1 of 3 seeds; no more are configured for it", "shared its GPU", "2 of 3 seeds; seed 1 failed: loss"]


def number(n: int, note: int | None = None) -> Entry:
    return Entry(0.5, 0.1, n, "partial" if note else "ok", note, pairs={seed: 0.5 for seed in range(n)})


def block(*rows: list[Entry], metrics: tuple[str, ...] = ("auc_pr", "p_at_1"), style: str = "percent") -> Block:
    columns = [Column("", metric, metric, style=style) for metric in metrics]
    return Block("", columns, [Row("", f"m{i}", f"m{i}", entries) for i, entries in enumerate(rows)])


def seeds(shown: Block) -> list[float | None]:
    assert shown.columns[-1].title == "seeds" and not shown.columns[-1].better
    return [row.entries[-1].mean for row in shown.rows]


def test_rows_that_differ_say_how_many_seeds_they_have_and_why_in_one_place():
    shown = block([number(3), number(3)], [number(1, note=1), number(1)], [number(3), Entry()])
    shown.rows.append(Row("Reference", "", "base rate", [number(1), number(1)]))
    assert add_seeds_columns([shown], NOTES)
    assert seeds(shown) == [3, 1, 3, None]
    assert [e.note for e in shown.rows[1].entries] == [None, None, 1], "the note stands once"
    assert shown.rows[1].entries[0].status == "partial", "such a row still does not compete"


def test_rows_that_are_alike_have_no_column():
    for rows in ([[number(3), number(1)], [number(3), number(1)]], [[number(2), number(2)], [Entry(), Entry()]]):
        shown = block(*rows)
        assert not add_seeds_columns([shown], NOTES)
        assert len(shown.columns) == 2 and all(len(row.entries) == 2 for row in shown.rows)


def test_the_fewest_of_a_row_count_and_other_notes_stay_where_they_are():
    shown = block([number(3), number(3)], [number(1, note=1), number(2)], [number(2, 2), number(2, 2)])
    assert add_seeds_columns([shown], NOTES)
    assert seeds(shown) == [3, 1, 2]
    assert [[e.note for e in row.entries] for row in shown.rows[1:]] == [[1, None, None], [2, 2, None]]


def test_times_of_fewer_seeds_do_not_count_unless_nothing_else_is_shown():
    mixed = block([number(3), number(1)], [number(1), number(1)])
    mixed.columns[1].style = "times"
    cost = block([number(3), number(1)], [number(3), number(3)], style="seconds")
    assert add_seeds_columns([mixed, cost], NOTES)
    assert seeds(mixed) == [3, 1] and seeds(cost) == [1, 3]


def test_a_number_over_several_settings_counts_seeds_and_not_settings():
    pooled = [Entry(0.5, 0.1, 6, pairs={(i, seed): 0.5 for i in range(3) for seed in range(2)}), number(2)]
    uneven = [Entry(0.5, 0.1, 3, pairs={(0, 0): 0.5, (0, 1): 0.5, (1, 0): 0.5}), number(2)]
    over_all = [Entry(0.5, pairs={("digits", seed): 0.5 for seed in range(9)}), number(3)]  # mean, rank: no seeds
    shown = block(pooled, uneven, over_all)
    assert add_seeds_columns([shown], NOTES)
    assert seeds(shown) == [2, 1, 3]


def test_a_block_that_counts_draws_needs_no_second_column():
    shown = block([Entry(3.0), number(3)], [Entry(1.0), number(1)], metrics=("draws", "auc_pr:difference"))
    assert not add_seeds_columns([shown], NOTES) and len(shown.columns) == 2
