"""Numbers of README and docs/results are written from the published records, quoted from the notebook, or facts.

`make docs` writes what lies between `<!-- name -->` and `<!-- /name -->`; test_pages holds it to the records. Any other
number on these pages is part of a name (CIFAR-10), or stands on a page of the lab notebook that the same item links to,
or is one of `facts`.
"""

import ast
import functools
import json
import re
from pathlib import Path
from statistics import mean

import pytest
import yaml

from tests.docs.pages import NOTEBOOK, read, without_code
from tests.helpers.project_copy import ROOT

MEASURED = ["README.md", "docs/index.md", "docs/results/measured.md", "docs/results/limits.md"]
NAMES = (  # parts of names, dates and settings, which are no results
    r"CIFAR-10N?0?N?|ResNet-\d+|resnet\d+|LeNet-5|H200|Table \d+|P@1%|Python 3\.1[12](?: or 3\.12)?",
    r"torch 2\.5 to 2\.9|torch 2\.\d+|numpy 2\.\d+",
    r"arXiv:[\d.]+|Apache-2\.0|CC BY-NC 4\.0|bf16|fp16|20\d\d(?:-\d\d-\d\d)?(?: and \d\d)?",
    r"\b\d\d% · 0\.\d|(?:a?symmetric|superclass|Grid,) \d\d%?|[Ss]eeds? \d(?: and \d)?|CIFAR-10/100|x32",
)
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?")


def settings(file: str) -> dict:
    return yaml.safe_load(read(f"configs/{file}.yaml"))


def default(path: str, name: str):
    """The default of a field of a class, read without importing it."""
    tree = ast.parse(read(path))
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.AnnAssign) and getattr(n.target, "id", "") == name]
    return ast.literal_eval(nodes[0].value)


@functools.cache
def facts() -> dict[str, object]:
    """Phrase of a page -> what the number in it must be."""
    cifar, measured = settings("cifar"), settings("ood-trained")
    scanned, differ, expected = (
        int(re.search(words, read("docs/scan.md"))[1].replace(",", ""))
        for words in (
            r"([\d,]+) images of CIFAR-10's training set",
            r"([\d,]+) of these labels differ",
            r"page expects ([\d,]+) wrong labels",
        )
    )
    growth = json.loads(read("benchmarks/measured/scaling-h200-2026-11-15.json"))["figures"]
    tables = json.loads(read("benchmarks/measured/tables-xeon-2026-11-20.json"))["figures"]
    ours, linear, forest = (
        [f[noise][method]["auc_pr"] for f in tables.values() for noise in f if noise != "none"]
        for method in ("sgoif", "cleanlab_linear", "cleanlab_forest")
    )
    rates = sorted({int(noise.split()[-1].strip("%")) for f in tables.values() for noise in f if noise != "none"})
    recipe, settings_of_cifar = cifar["recipes"]["resnet9"], len(cifar["noisy"]["cifar10"]["settings"])
    return {
        "{} epochs (CIFAR-100": recipe["epochs"],
        "{} epochs on CIFAR-10": recipe["epochs"],
        "(CIFAR-100: {})": cifar["noisy"]["cifar100"]["recipe"]["epochs"],
        "{} on CIFAR-100; batches": cifar["noisy"]["cifar100"]["recipe"]["epochs"],
        "batches of {};": recipe["batch_size"],
        "peak {};": recipe["lr"],
        "{} epochs (LeNet-5": measured["ood"]["cifar10"]["recipe"]["epochs"],
        "LeNet-5, {} epochs": cifar["recipes"]["lenet5"]["epochs"],
        "FastIF: {} test images": default("baselines/noisy/fastif.py", "n_anchors"),
        "FastIF with {} clean": default("baselines/noisy/fastif.py", "n_anchors"),
        "{} is perfect": 100,
        "† has {},": default("baselines/noisy/fastif.py", "n_anchors"),
        "{} clean labels": cifar["variants"]["fastif"]["all_trusted"]["n_anchors"],
        "first {} test images": cifar["variants"]["fastif"]["all_trusted"]["n_anchors"],
        "suspicious of {} images of CIFAR-10": scanned,
        "In all {} differ": differ,
        "the page estimates {}": expected,
        "mean of {} settings, which": settings_of_cifar,
        "noise of {}, {} and {}% (": (20, 40, 70),
        "{}% noise with sparsity {})": (70, 0.6),
        "with {} to {}% wrong labels the": (rates[0], rates[-1]),
        "more than {} configurations": 150,
        "{} images and ten classes": growth["n"]["50000"]["n"],
        "{} for the networks": growth["model"]["resnet18"]["n"],
        "noise matrices of {}": 20,
        "in [{} tables": len(tables),
        "mean AUC-PR is {},": round(mean(ours), 1),
        "a random forest {}.": round(mean(forest), 1),
        "A random forest is up to {} ahead": round(max(b - a for a, b in zip(ours, forest, strict=True)), 1),
        "a logistic regression up to {}.": round(max(b - a for a, b in zip(ours, linear, strict=True)), 1),
        "{}% of the clean ones": round(max(f["none"]["sgoif"]["flagged"] for f in tables.values())),
    }


def spoken(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def items(page: str) -> list[str]:
    """Paragraphs, items of lists and rows of tables, without code and without what is generated."""
    text = re.sub(r"<!-- (\w+) -->\n.*?<!-- /\1 -->", "", without_code(page), flags=re.S)
    return [item for item in re.split(r"\n\s*\n|\n(?=\* |\|)", text) if item.strip()]


def left_over(item: str) -> list[str]:
    """Numbers of an item that are neither in code or targets of links, nor part of a name or of a fact."""
    text = re.sub(r"<!--.*?-->|`[^`]*`|\]\([^)]*\)|https?://\S+", " ", item, flags=re.S)
    text = " ".join(text.split())
    for phrase, value in facts().items():
        values = value if isinstance(value, tuple) else (value,)
        text = text.replace(phrase.format(*map(spoken, values)), phrase.format(*["…"] * len(values)))
    return NUMBER.findall(re.sub("|".join(NAMES), " ", text))


def quoted(item: str) -> set[str]:
    """Numbers of the pages of the notebook that an item links to."""
    pages = [page for page in NOTEBOOK if Path(page).name in re.findall(r"lab-notebook/([\w-]+\.md)", item)]
    return set(NUMBER.findall(" ".join(read(page) for page in pages)))


@pytest.mark.parametrize("page", MEASURED)
def test_every_number_has_a_source(page):
    unknown = [(number, item) for item in items(page) for number in left_over(item) if number not in quoted(item)]
    assert unknown == []


def test_the_search_was_as_large_as_the_readme_says():
    """More than 150 configurations: those of the notebook's table on CIFAR tuning noise."""
    table = read("docs/lab-notebook/defaults.md").partition("## How many were tried")[2]
    tried = [int(n) for n in re.findall(r"^\|[^|]*\|[^|]*\| (\d+) \|$", table, flags=re.M)[:5]]
    assert tried == [51, 39, 16, 25, 21] and sum(tried) > 150


def test_quotes_of_the_notebook_stand_there():
    """What README says of an eager loop is what the notebook measured."""
    notebook = (
        read("docs/lab-notebook/outside-the-recipe.md").partition("## Cost in an eager loop")[2].partition("\n## ")[0]
    )
    on_gpu, _, on_cpu = notebook.partition("### On a CPU")
    ratios = sorted(re.findall(r"\| (\d\.\d\d) \([^|]*\) \|$", on_gpu, flags=re.M))  # medians, each with its interval
    (most,) = re.findall(r"and (\d\.\d\d) both times since", on_cpu)
    perceptrons = sorted(re.findall(r"^\| \d+-\d+ \| [^|]*\| \d+ \| (\d\.\d\d) \|", on_cpu, flags=re.M))
    quoted = (
        f"In an eager loop of your own [{ratios[0]} to {ratios[-1]}, on a CPU 1.04 to {most} with small convolutional "
        f"networks and {perceptrons[0]} to {perceptrons[-1]} with perceptrons]"
    )
    assert quoted in " ".join(read("README.md").split())


def test_a_number_without_a_source_is_found():
    assert left_over("It has 98.7654 on CIFAR-10, `1.5`, [20%](limits.md#a-1), 16 epochs.") == ["98.7654", "20", "16"]
    item = "AUM has 96.2 ([trials](../lab-notebook/outside-the-recipe.md#long-tails-and-long-training))"
    assert "96.2" in quoted(item) and "63.2" not in quoted(item) and quoted("AUM has 96.2") == set()


def test_the_supported_versions_are_those_of_the_lock_and_of_the_gpu_run():
    readme, lock = read("README.md"), read("requirements.lock")
    torch = re.search(r"^torch==(\d+\.\d+)", lock, flags=re.M)[1]
    assert f"Python 3.11 with torch {torch} (CPU)" in readme
    versions = json.loads(read("results/published/measurement/provenance.json"))["pieces"][0]["versions"][0]
    python, gpu = re.search(r"python (\d+\.\d+)", versions)[1], re.search(r"torch (\d+\.\d+)", versions)[1]
    assert f"Python {python} with torch {gpu} (GPU)" in readme
    assert f"torch>={re.search(r'torch (2.5) to', readme)[1]}" in read("pyproject.toml")
    assert (ROOT / "tests" / "training" / "test_distributed.py").is_file()
