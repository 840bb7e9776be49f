"""The notebook: valid, without outputs, and its cells that need no download run and find what they should."""

import ast
import json
import socket

import nbformat
import numpy as np
import pytest

from examples.judged_errors import CHECKSUMS, contact_sheet, judged_labels, parse_judged
from sgoif.errors import UserError
from sgoif.utils.paths import ROOT

NOTEBOOK = ROOT / "examples" / "real_label_errors.ipynb"


@pytest.fixture(scope="module")
def cells():
    """The code cells: (source, whether it needs a download)."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code), "outputs are not kept"
    return [(cell.source, "download" in cell.metadata.get("tags", [])) for cell in code]


def run_cell(source: str, variables: dict) -> object:
    """Run a cell as Jupyter does; return the value of its last expression, or None."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), variables)
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), variables) if last else None


def test_cells_without_a_download_run_and_find_the_wrong_labels(cells, monkeypatch, capsys):
    monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("this cell asks for the network"))
    variables: dict = {}
    values = [run_cell(source, variables) for source, download in cells if not download]
    assert variables["found"] > 0.85 and variables["right"] > 0.85
    assert [value.size[0] > 300 for value in values if value is not None] == [True, True], "two pictures"
    assert "labels are wrong" in capsys.readouterr().out


def test_cells_that_need_a_download_say_so_and_others_do_not(cells):
    told = [source.startswith("# download: ") for source, _ in cells]
    assert told == [download for _, download in cells] and sum(told) == 4
    for source, _ in cells:
        ast.parse(source)


def test_a_cell_compares_the_ranking_with_the_judgements(cells, capsys):
    """The cell that ranks CIFAR-10, on ten times less data made here: features, labels, and 20 judged errors."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 1000)
    wrong = {int(i) for i in rng.permutation(1000)[:20]}
    targets = [int((y + 1) % 10) if i in wrong else int(y) for i, y in enumerate(labels)]
    cifar = type(
        "", (), {"targets": targets, "data": np.zeros((1000, 32, 32, 3), np.uint8), "classes": list("abcdefghij")}
    )
    embeddings = 4 * np.eye(10, 16)[labels] + rng.normal(size=(1000, 16))
    variables = {"embeddings": embeddings.astype(np.float32), "cifar": cifar, "judged_wrong": wrong, "np": np}
    run_cell("import sgoif\nfrom examples.judged_errors import contact_sheet", variables)
    (source,) = [source for source, _ in cells if "for n in (25, 50, 100, 200)" in source]
    assert run_cell(source, variables).size[0] > 800
    assert "20 of the 20 judged errors are among the first 25" in capsys.readouterr().out


def test_judgements():
    rows = [{"id": 20, "mturk": {"given": 3, "guessed": 0}}, {"id": 7, "mturk": {"given": 2, "guessed": 3}}]
    assert [(j.index, j.wrong) for j in parse_judged(json.dumps(rows))] == [(20, False), (7, True)]


def test_judgements_that_are_not_the_published_ones_are_refused(tmp_path, monkeypatch):
    """A changed file is not read; it would be fetched again, and there is no network here."""
    (tmp_path / "mnist_mturk.json").write_text("[]")
    monkeypatch.setattr("sgoif.bench.data.download._transfer", lambda *_: (_ for _ in ()).throw(OSError("no network")))
    monkeypatch.setattr("sgoif.bench.data.download.time.sleep", lambda _: None)
    with pytest.raises(UserError, match=r"cannot download https://raw\.githubusercontent\.com/cleanlab/label-errors/"):
        judged_labels("mnist", tmp_path)
    assert set(CHECKSUMS) == {"cifar10", "mnist"}


def test_a_contact_sheet_has_a_place_for_every_image():
    images = [np.full((8, 8), 40 * n, np.uint8) for n in range(5)] + [np.full((9, 9, 3), 200, np.uint8)]
    sheet = np.asarray(contact_sheet(images, ["one\ntwo"] * 6, columns=3, side=50))
    assert sheet.shape[1] == 3 * 55 + 5 and (sheet[10, 10] == 0).all() and (sheet[10, 70] == 40).all()
    assert (sheet[:60] != 200).all() and (sheet[60:, 130] == 200).all(1).sum() == 50, "the sixth is in the second row"
