"""Several partial runs in one small file: the same cells and records as in the files it was made of."""

import copy

import pytest

from sgoif.bench.cli import main
from sgoif.bench.sharing.merge import collect
from sgoif.bench.sharing.partial_run import owner_of, write_partial_run
from sgoif.bench.sharing.records_file import pack_records, read_parts, records_of_run
from sgoif.errors import UserError
from sgoif.utils.packed_json import read_packed_json, write_packed_json
from sgoif.utils.paths import ROOT


@pytest.fixture(scope="module")
def part() -> dict:
    """A small partial run: the first six cells of one that is published, with their records."""
    parts = dict(read_parts([records_of_run(ROOT / "results", "ood-trained")]))
    one = copy.deepcopy(parts["noisy-mnist-sixth.json.gz"])
    cells = one["cells"][:6]
    owners = {owner_of(cell["cell"]) for cell in cells}
    owners |= {(*owner[:3], seed, "") for owner in owners for seed in (None, owner[3])}
    return {**one, "cells": cells, "records": [r for r in one["records"] if owner_of(r) in owners]}


def later_version(part: dict, n_cells: int) -> dict:
    """The first cells of a partial run, measured again with other numbers."""
    cells = [{**cell, "commit": "later"} for cell in part["cells"][:n_cells]]
    owners = {owner_of(cell["cell"]) for cell in cells}
    records = [{**r, "value": 0.123} for r in part["records"] if owner_of(r) in owners]
    return {**part, "cells": cells, "records": records}


@pytest.fixture
def files(part, tmp_path):
    paths = [tmp_path / "a.json.gz", tmp_path / "b.json.gz"]
    write_partial_run(paths[0], part)
    write_partial_run(paths[1], later_version(part, 2))
    return paths


def test_a_packed_file_says_what_its_parts_said_and_what_was_replaced_is_gone(files, tmp_path):
    out = tmp_path / "records.json.gz"
    kept = pack_records(files, out, "ood-trained")
    assert [(name, len(part["cells"])) for name, part in kept] == [("a.json.gz", 4), ("b.json.gz", 2)]
    before, after = (collect([part for _, part in read_parts(some)]) for some in (files, [out]))
    assert before.records == after.records and before.file_of == after.file_of
    assert len(before.records) > 6 and {
        r["value"] for r in before.records[owner_of(kept[1][1]["cells"][0]["cell"])]
    } == {0.123}
    once = out.read_bytes()
    pack_records([out], out, "ood-trained")
    assert out.read_bytes() == once, "packing what is packed changes nothing"
    pack_records([*files, files[0]], out, "ood-trained")
    assert [name for name, _ in read_parts([out])] == ["a.json.gz"], "a part that nothing is left of goes"


def test_the_step_adds_to_the_file_of_the_run_or_begins_anew(files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = ["--config", str(ROOT / "configs" / "ood-trained.yaml")]
    out = records_of_run(tmp_path / "results", "ood-trained")
    assert main(["pack-records", str(files[0]), *config]) == 0
    assert main(["pack-records", str(files[1]), *config]) == 0
    assert "6 cells of 2 partial runs" in capsys.readouterr().out and len(read_parts([out])) == 2
    assert main(["pack-records", "--fresh", str(files[1]), *config]) == 0
    assert [name for name, _ in read_parts([out])] == ["b.json.gz"]
    with pytest.raises(UserError, match=r"a\.json\.gz holds records of run 'ood-trained', not of 'other'"):
        pack_records(files, out, "other")


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda content: content.pop("parts"), "it has no `run` and `parts`"),
        (lambda content: content["parts"][1].pop("note"), "part 1 has no name, config_hash, note"),
        (lambda content: content["parts"][0]["records"].pop("value"), "part a.json.gz has no `cells` and columns"),
        (lambda content: content["parts"][0]["records"]["value"].pop(), "part a.json.gz has no `cells` and columns"),
        (lambda content: content["parts"][0]["cells"][0].pop("commit"), "does not say where it was measured"),
        (lambda content: content["parts"][0].update(cells=[]), "which is not among its cells"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_with_what_is_missing(files, tmp_path, broken, told):
    out = tmp_path / "records.json.gz"
    pack_records(files, out, "ood-trained")
    content = read_packed_json(out, "")
    broken(content)
    write_packed_json(out, content)
    with pytest.raises(UserError, match=r"records\.json\.gz is no file of records: ") as error:
        read_parts([out])
    assert told in str(error.value)


def pairs_with_a_plain_run():
    """Parts of the published records, a plain run in each, and a cell of another method that is compared with it."""
    for _, part in read_parts([records_of_run(ROOT / "results", "measurement")]):
        compared = {owner_of(r) for r in part["records"] if r["metric"] == "overhead_passes"}
        for plain in (cell for cell in part["cells"] if cell["cell"]["method"] == "plain"):
            same = [c for c in part["cells"] if {**c["cell"], "method": "plain"} == plain["cell"] and c is not plain]
            yield from ((part, plain, c) for c in same if owner_of(c["cell"]) in compared)


def test_a_cell_whose_plain_run_is_in_another_part_gets_its_overhead_in_passes(tmp_path):
    """One cell of a published run, split from its plain run and stripped of what was compared with it."""
    whole, plain, own = next(pairs_with_a_plain_run())

    def overhead(parts) -> list[float]:
        records = [r for _, part in parts for r in part["records"] if owner_of(r) == owner_of(own["cell"])]
        return [r["value"] for r in records if r["metric"] == "overhead_passes"]

    paths = []
    for name, cell in (("plain", plain), ("own", own)):
        records = [r for r in whole["records"] if owner_of(r) == owner_of(cell["cell"])]
        records = [r for r in records if not r["metric"].startswith("overhead_")]
        if name == "own":
            records.append({**records[0], "metric": "overhead_marginal", "value": None, "status": "not run",
                            "reason": "no plain run to compare with"})  # fmt: skip
        paths.append(tmp_path / f"{name}.json.gz")
        write_partial_run(paths[-1], {**whole, "cells": [cell], "records": records})
    packed = pack_records(paths, tmp_path / "out.json.gz", "measurement")
    assert overhead(packed) == overhead([("", whole)])
    (told,) = [r for _, part in packed for r in part["records"] if r["metric"] == "overhead_marginal"]
    assert told["status"] == "undefined" and "at another time" in told["reason"]
    assert overhead(pack_records(paths[1:], tmp_path / "out.json.gz", "measurement")) == []
