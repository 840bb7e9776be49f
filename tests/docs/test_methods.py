"""The pages of methods: written from their files, complete, and the tests they name exist."""

import ast
import importlib.util
import re

import pytest

from sgoif.bench.methods import registry
from tests.docs.pages import ROOT, read

spec = importlib.util.spec_from_file_location("methods_page", ROOT / "docs" / "scripts" / "methods.py")
methods = importlib.util.module_from_spec(spec)
spec.loader.exec_module(methods)
ALL = [(task, name) for task in methods.PAGES for name in registry.available(task)]


def fields_of(task, name):
    text = (ROOT / "baselines" / task / f"{name}.py").read_text()
    return methods.docstring_fields(ast.get_docstring(ast.parse(text)))[1]


@pytest.mark.parametrize("task", methods.PAGES)
def test_the_pages_are_current(task):
    assert methods.page(task) == read(f"docs/methods/{task}.md"), "a method's file was changed: make docs"


@pytest.mark.parametrize(("task", "name"), ALL)
def test_every_method_has_a_section_with_all_that_a_reader_needs(task, name):
    found = methods.section(task, name)
    for field in methods.FIELDS:
        assert re.search(rf"^\* \*\*{field}\*\*: \S", found, re.M), field
    assert "as the text says" not in found, "say what differs from the authors' code: `Deviations: …`"
    assert f"baselines/{task}/{name}.py" in found
    declared = registry.declaration(task, name)
    assert found.count("**(ranks)**") == bool(declared.candidates)
    assert all(f"`{candidate}`: " in found for candidate in declared.candidates)


@pytest.mark.parametrize("task", methods.PAGES)
def test_no_paragraph_is_too_long_to_read(task):
    text = re.sub(r"```.*?```", "\n\n", read(f"docs/methods/{task}.md"), flags=re.S)
    long = [p for p in re.split(r"\n\s*\n|\n(?=\s*\* )", text) if len(p.split()) > 110 and not p.startswith("|")]
    assert long == [], "begin a new paragraph in the docstring of the method"


@pytest.mark.parametrize("name", registry.available("ood"))
def test_ood_methods_keep_the_layout_and_their_parity_test_exists(name):
    fields = fields_of("ood", name)
    assert set(fields) == set(methods.FIELDS), "the fields that docs/scripts/methods.py lists, each once"
    path, test = fields["Parity"].split("::")
    text = (ROOT / path).read_text()
    assert f"def {test}(" in text


def test_fields_and_formulas_are_told_from_text():
    body, fields = methods.docstring_fields(
        "X (A & B, ICML 2020).\n\n    s = 1\n\nText. Deviation: none,\nor few.\nCost: 1.\n\n"
        "Settings: a\n    and b.\nScore: s.\n"
    )
    assert fields == {"Deviations": "none, or few.", "Settings": "a and b.", "Score": "s."}
    assert methods.as_markdown(body) == "X (A & B, ICML 2020).\n\n```text\ns = 1\n```\n\nText.\nCost: 1."
    assert methods.parameters("class M:\n    class Params:\n        a: int = 3  # what\n        b: float = 0.5\n") == [
        "    * `a = 3`: what",
        "    * `b = 0.5`",
    ]
