"""The script that mutates the project: what it changes, what it leaves alone, and what counts as killed."""

import ast
import json
from types import SimpleNamespace

import pytest

from sgoif.utils.paths import ROOT
from tests.mutants.campaign import Campaign, identity, verdict
from tests.mutants.draw import draw, target_files
from tests.mutants.edits import edits
from tests.mutants.nearest import TABLE, nearest
from tests.mutants.sites import Mutant, SourceFile
from tests.mutants.survivors import read_noticed
from tests.mutants.workers import Run, Worker, read_run

CODE = "def double(x):\n    return x + x\n"
TESTS = """import os

import pytest

from sgoif import double


def test_missing():
    pytest.importorskip("a_package_that_is_not_there")


def test_fails_always():
    assert False


def test_three():
    assert double(3) == 6


def test_zero():
    assert double(0) == 0
"""


def every_mutant(code: str) -> list[Mutant]:
    """All mutants of a snippet."""
    source = SourceFile("snippet.py", code)
    found = [source.mutant(site, i) for site in source.sites() for i in range(len(site.edits))]
    return [mutant for mutant in found if mutant is not None]


@pytest.mark.parametrize(
    ("code", "kind", "expected"),
    [
        ("a < b", "comparison", {"a <= b", "a >= b"}),
        ("a  <  (b)  # <", "comparison", {"a  <=  (b)  # <", "a  >=  (b)  # <"}),
        ("a is  not b", "comparison", {"a is b"}),
        ("0 < a in b", "comparison", {"0 <= a in b", "0 >= a in b", "0 < a not in b"}),
        ("(a + b) * c", "arithmetic", {"(a - b) * c", "(a + b) / c"}),
        ("c - a * b", "arithmetic", {"c + a * b", "c - a / b"}),
        ("c * (a / b)", "arithmetic", {"c / (a / b)", "c * (a * b)"}),
        ("a - b * c", "arithmetic", {"a + b * c", "a - b / c"}),
        ("a -= b", "arithmetic", {"a += b"}),
        ("a and b and c", "boolean", {"a or b or c"}),
        ("a and b or c", "boolean", {"(a and b) and c", "(a or b) or c"}),
        ("f(0, 1, 5)", "constant", {"f(1, 1, 5)", "f(0, 0, 5)", "f(0, 2, 5)", "f(0, 1, 6)", "f(0, 1, 10)"}),
        ("a = 0.5", "constant", {"a = 1.5", "a = 1.0"}),
        ("a = 1e-9", "constant", {"a = 1.000000001"}),
        ("a = True", "constant", {"a = False"}),
        ("b = -a", "sign", {"b = a"}),
        ("x = not (a or b)", "not", {"x = a or b"}),
        ("x = (not (a or b)) + 1", "not", {"x = (a or b) + 1"}),
        ("x = y * -(a + b)", "sign", {"x = y * (a + b)"}),
        ("max(a.argmin(1), b)", "extremum", {"min(a.argmin(1), b)", "max(a.argmax(1), b)"}),
        ("torch.amax(a)", "extremum", {"torch.amin(a)"}),
        ("a.sum(dim=1)", "axis", {"a.sum(dim=0)"}),
        ("a.sum(axis=0)", "axis", {"a.sum(axis=1)"}),
        ("a.sum(dim=-1)", "axis", {"a.sum(dim=0)"}),
        ("a[1:n]", "slice", {"a[:n]", "a[1:]"}),
        ("a[::-1, b]", "slice", {"a[:, b]"}),
        ("if a:\n    b += 1", "dropped", {"if a:\n    pass"}),
        ("a.add_(\n    b,\n)", "dropped", {"pass"}),
        ("a.append(b)", "dropped", {"pass"}),
        ("a[i] = b", "dropped", {"pass"}),
        ("é = 'ü'; b = a > 2", "comparison", {"é = 'ü'; b = a >= 2", "é = 'ü'; b = a <= 2"}),
    ],
)
def test_each_kind_of_mutation(code, kind, expected):
    """The rest of the text stays as it was."""
    assert {mutant.source for mutant in every_mutant(code) if mutant.kind == kind} == expected


@pytest.mark.parametrize(
    "code",
    [
        '"""A docstring with 1 + 1."""',
        "def f(x: Array[1, 2] = None) -> Array[3]:\n    '''Adds 1.'''\n    a: Literal[4]",
        "raise ValueError(f'{n + 1} of {max(a, b)}', 1)",
        "print(1 + 1)\nlogger.info('%d', n + 1)\nwarnings.warn('x', stacklevel=2)",
        "class A:\n    def __repr__(self):\n        return str(self.n + 1)",
        "if TYPE_CHECKING:\n    N = 1",
        "__all__ = ['a'] + ['b']",
        "@dataclass(frozen=True)\nclass A:\n    pass",
        "zip(a, b, strict=True)",
        "a = 'text' + b",
        "a = f'{b + 1:.3f}'",
    ],
)
def test_what_is_never_mutated(code):
    assert every_mutant(code) == []


def test_a_mutant_of_the_project_differs_in_one_node_and_is_python():
    for mutant in draw(ROOT, 12, seed=3, only=["sgoif/label_noise", "baselines/noisy"]):
        original = (ROOT / mutant.file).read_text()
        assert ast.dump(ast.parse(mutant.source)) != ast.dump(ast.parse(original))
        assert original.replace(mutant.before, mutant.after) != original
        assert mutant.diff(original) and all(line[0] in "+-" for line in mutant.diff(original))


def test_an_edit_that_changes_nothing_is_no_mutant():
    source = SourceFile("snippet.py", "a = 1")
    (site,) = source.sites()
    same = type(site)(site.identity, site.function, site.node, site.path, [("constant", ast.Constant(1))])
    assert source.mutant(same, 0) is None


def test_edits_leave_the_tree_alone():
    tree = ast.parse("a < b", mode="eval")
    before = ast.dump(tree)
    assert len(list(edits(tree.body, tree))) == 2 and ast.dump(tree) == before


def test_the_draw_follows_the_seed_grows_with_the_count_and_survives_edits_elsewhere(tmp_path):
    (tmp_path / "a.py").write_text("\n".join(f"def f{i}(x):\n    return x + {i + 2}" for i in range(30)))
    ten = draw(tmp_path, 10, seed=0, only=["a.py"])
    assert ten == draw(tmp_path, 10, seed=0, only=["a.py"]) == draw(tmp_path, 20, seed=0, only=["a.py"])[:10]
    assert ten != draw(tmp_path, 10, seed=1, only=["a.py"])
    (tmp_path / "a.py").write_text("import os\n\n" + (tmp_path / "a.py").read_text())
    again = draw(tmp_path, 10, seed=0, only=["a.py"])
    assert [(m.function, m.after, m.line - 2) for m in again] == [(m.function, m.after, m.line) for m in ten]


def test_an_unknown_folder_is_named():
    with pytest.raises(FileNotFoundError, match="no file or folder sgoif/nonsense"):
        target_files(ROOT, ["sgoif/nonsense"])


def test_every_target_has_tests_near_it():
    for file in target_files(ROOT):
        assert nearest(ROOT, file) or not SourceFile(file, (ROOT / file).read_text()).sites(), file
    for entry, tests in TABLE.items():
        assert (ROOT / entry).exists(), entry
        assert all((ROOT / test).is_file() for test in tests), f"{entry}: a listed test file is gone"


def test_the_nearest_tests_stand_in_order():
    metrics = nearest(ROOT, "sgoif/bench/evaluation/metrics.py")
    assert metrics[0] == "tests/bench/evaluation/test_metrics.py" and len(set(metrics)) == len(metrics)
    fastif = nearest(ROOT, "baselines/noisy/fastif.py")
    assert fastif[0] == "tests/parity/test_fastif.py" and "tests/contract/test_noisy.py [fastif]" in fastif
    react = nearest(ROOT, "baselines/ood/react.py")
    assert react[0] == "tests/parity/test_ood_posthoc.py" and "tests/contract/test_ood.py [react]" in react
    assert nearest(ROOT, "baselines/ood/vos.py")[0] == "tests/parity/test_ood_trained.py"
    assert "tests/contract/test_params.py" in nearest(ROOT, "baselines/ood/vos.py")[:3]
    queue = nearest(ROOT, "sgoif/gradients/queue.py")
    assert queue[0] == "tests/gradients/test_queue.py" and "tests/method/test_exactness.py" in queue
    assert nearest(ROOT, "sgoif/gradients/dot_product.py")[0] == "tests/gradients/test_hooks.py"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """A project of one function: a mutant that is noticed and one that is not; run twice."""
    root = tmp_path_factory.mktemp("project")
    for name, text in {
        "sgoif/__init__.py": CODE,
        "baselines/__init__.py": "",
        "tests/__init__.py": "",
        "tests/test_double.py": TESTS,
        "tests/mutants/__init__.py": "",
        "tests/mutants/record.py": (ROOT / "tests/mutants/record.py").read_text(),
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-q'\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    file = "sgoif/__init__.py"
    texts = {"wrong": CODE.replace("x + x", "x - x"), "equal": CODE.replace("x + x", "2 * x")}
    mutants = [Mutant(file, 2, "double", name, "x + x", "", text) for name, text in texts.items()]
    out, said = root.with_name("out.json"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.mutants.campaign.nearest", lambda root, file: ["tests/test_double.py"])
        worker = Worker(root, root.with_name("copy"))
        first = Campaign(root, mutants, out, budget=60)
        records = first.run([worker], said.append)
        resumed = Campaign(root, mutants, out, budget=60)
        again = resumed.run([], said.append)
    by_kind = {record["kind"]: record for record in records}
    return SimpleNamespace(
        root=root, out=out, mutants=mutants, records=records, by_kind=by_kind, again=again, said=said, worker=worker
    )


def test_a_mutant_is_killed_by_the_test_that_notices_it(campaign):
    killed = campaign.by_kind["wrong"]
    assert killed["outcome"] == "killed" and killed["by"] == "tests/test_double.py::test_three"
    assert killed["reason"] == "assert 0 == 6" and killed["diff"] == ["-    return x + x", "+    return x - x"]


def test_failing_and_skipped_tests_of_the_unchanged_project_kill_nothing(campaign):
    survivor = campaign.by_kind["equal"]
    assert survivor["outcome"] == "survived" and survivor["by"] is None
    assert survivor["ran"] == ["tests/test_double.py"]


def test_a_run_without_end_is_killed_at_its_limit(campaign):
    run = campaign.worker.pytest(["tests/test_double.py"], 0.2)
    assert run.timed_out and verdict(run) == "timeout" and run.seconds < 30
    assert campaign.worker.process.poll() is not None


def test_the_test_that_hangs_is_named(tmp_path):
    lines = [["started", "a", 0, ""], ["passed", "a", 1, ""], ["started", "b", 0, ""]]
    run = read_run(lines, -9, True, 3.0, tmp_path / "output")
    assert run.killer == "b" and run.outcomes == {"a": "passed", "b": "started"}


def test_a_second_start_runs_nothing_again_and_the_checkout_stays_as_it_was(campaign):
    assert campaign.again == campaign.records and len(campaign.said) == 3
    assert (campaign.root / "sgoif/__init__.py").read_text() == CODE
    assert (campaign.worker.folder / "sgoif/__init__.py").read_text() == CODE
    assert not list(campaign.root.rglob("__pycache__")) and not (campaign.root / ".scratch").exists()
    stored = json.loads(campaign.out.read_text())["mutants"]
    assert [record["id"] for record in stored] == [identity(mutant) for mutant in campaign.mutants]


def test_a_stopped_worker_gives_no_outcome(campaign, tmp_path):
    worker = Worker(campaign.root, tmp_path / "copy")
    worker.stop()
    with pytest.raises(InterruptedError):
        worker.pytest(["tests/test_double.py"], 60)


def test_the_budget_leaves_out_what_takes_too_long_and_keeps_the_nearest(campaign):
    limited = Campaign(campaign.root, [], campaign.out, budget=10)
    limited.choices = {"a.py": ["missing", "near", "long", "short", "shorter"]}
    times = {"missing": 1, "near": 20, "long": 30, "short": 4, "shorter": 2}
    limited.clean = {name: {"seconds": s, "passed": ["test"] * (name != "missing")} for name, s in times.items()}
    assert limited.groups("a.py") == [["near"]]
    limited.budget = 26
    assert limited.groups("a.py") == [["short"], ["shorter", "near"]]  # a quick one first, then by length
    limited.choices = {"a.py": ["missing"]}
    assert limited.groups("a.py") == []


def test_survivors_alone_are_run_again_on_request(campaign):
    again = Campaign(campaign.root, campaign.mutants, campaign.out, budget=60, again=True)
    assert {record["kind"] for record in again.records.values()} == {"wrong"}


def test_packages_named_by_the_environment_reach_the_tests(campaign, tmp_path, monkeypatch):
    """As where the packages lie in a folder of their own; the copy of the project still comes first."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/extra_package.py").write_text("VALUE = 7")
    (tmp_path / "elsewhere/sgoif.py").write_text("raise ImportError('the wrong copy')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("SGOIF_TEST_VARIABLE", "seen")
    asked = campaign.worker.folder / "tests/test_environment.py"
    asked.write_text(
        "import os\nimport extra_package\nfrom sgoif import double\n\n"
        "def test_it():\n    assert double(extra_package.VALUE) == 14 and os.environ['SGOIF_TEST_VARIABLE'] == 'seen'\n"
    )
    run = campaign.worker.pytest(["tests/test_environment.py"], 60)
    assert run.status == 0 and run.outcomes == {"tests/test_environment.py::test_it": "passed"}, run


def test_a_mutant_has_a_time_limit_of_its_own(campaign, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.mutants.campaign.nearest", lambda root, file: ["tests/test_double.py"])
    monkeypatch.setattr("tests.mutants.campaign.MIN_LIMIT", 0.01)
    for limit, expected in ((0.001, "timeout"), (60.0, "survived")):
        hurried = Campaign(campaign.root, campaign.mutants[1:], tmp_path / f"{limit}.json", 60, limit)
        (record,) = hurried.run([campaign.worker], lambda text: None)
        assert record["outcome"] == expected and record["seconds"] < 30


@pytest.mark.parametrize(
    ("status", "expected"), [(0, "survived"), (5, "survived"), (1, "killed"), (2, "killed"), (-11, "killed")]
)
def test_what_an_exit_status_means(status, expected):
    assert verdict(Run({}, None, "", 1.0, False, status)) == expected


def test_the_tests_that_were_added_for_mutants_are_there():
    added = read_noticed()
    assert added and all((ROOT / entry.reason).is_file() for entry in added)
