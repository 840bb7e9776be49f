"""A wrong configuration is refused before any job starts, with the key's path and the nearest valid names."""

import copy
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sgoif.bench.config import load_config, read_schema, resolve_config, walk
from sgoif.bench.config.checks import CHECKED_PARAMS, check_titles, params_digest
from sgoif.bench.config.layering import layer, merge
from sgoif.bench.config.types import VARIANT_KINDS
from sgoif.bench.data.noise.spec import KINDS
from sgoif.bench.methods import registry
from sgoif.errors import UserError
from sgoif.training.models import MODELS
from sgoif.utils.paths import ROOT
from tests.helpers.project_copy import MINI_CONFIG

CONFIGS = ROOT / "configs"
SMALL = yaml.safe_load(MINI_CONFIG.read_text())


def changed(path: str, value):
    config = copy.deepcopy(SMALL)
    *parents, last = path.split(".")
    at = config
    for key in parents:
        at = at.setdefault(key, {})
    at[last] = value
    return config


def test_two_methods_must_not_have_the_same_title(monkeypatch):
    same = SimpleNamespace(title="mean margin (AUM)")
    monkeypatch.setattr(registry, "declaration", lambda task, name: same)
    with pytest.raises(UserError, match=r"noisy: 'aum' and 'loss' have the same title, 'mean margin \(AUM\)'; change"):
        check_titles("noisy", ["loss", "aum", "aum@all"], "noisy")


@pytest.mark.parametrize("name", ["embedded", "cifar", "paper", "ood-trained"])
def test_shipped_configurations_are_valid(name):
    config = load_config(CONFIGS / f"{name}.yaml")
    assert config["run"] == name
    assert config["execution"]["threads"] >= 1  # defaults are filled in


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("noisyy", {}, r"noisyy: no such key; did you mean noisy\?"),
        ("execution.threds", 2, r"execution.threds: no such key; did you mean threads\?"),
        ("execution.threads", "two", "execution.threads: 'two' is not of type 'integer'"),
        ("execution.threads", "2", "execution.threads: '2' is not of type 'integer'; write it without quotes"),
        ("recipes.digits.lr", "1e-3", r"lr: '1e-3' is not of type 'number'; YAML takes 1e-3 for a text, write 1.0e-3$"),
        ("recipes.digits.model", "tinny", "recipes.digits.model: 'tinny' is not allowed. tiny_cnn, small_cnn, "),
        ("recipes.digits.model", "timm:x@0", "recipes.digits.model: 'timm:x@0' is not allowed"),
        ("run", "../mine", "run: '../mine' is not allowed. Name of the run, of small letters, "),
        ("noisy.digits.settings.A b", {}, "noisy.digits.settings: 'A b' is not allowed. A name here has small letters"),
        ("execution.device", "gpu", "execution.device: 'gpu' is not one of auto, cpu, cuda"),
        ("noisy.digit", {"recipe": {}, "seeds": [0], "settings": {}}, r"no dataset 'digit'; did you mean digits"),
        ("methods.noisy", ["lossy"], r"no method 'lossy'; did you mean loss"),
        ("methods.noisy", ["loss@odd"], r"no variant 'odd'"),
        ("noisy.digits.retrain", {"loss": {"seed": [0]}}, r"retrain\.loss\.seed: no such key; did you mean s"),
        ("noisy.digits.retrain", {"lss": {}}, r"noisy\.digits\.retrain: no method 'lss'; did you mean loss"),
        ("noisy.digits.retrain", "all", r"noisy\.digits\.retrain: 'all' is not valid"),
        ("noisy.digits.settings.x", {"kind": "class_conditional", "noise": 1.2}, r"noisy.digits.settings.x.noise"),
        ("noisy.digits.settings.x", {"kind": "class_conditional", "noise": 0.2, "sparsity": 2}, r"settings.x.sparsity"),
        ("noisy.digits.settings.x", {"kind": "gaussian"}, r"'gaussian' is not one of class_conditional"),
        ("noisy.digits.settings.clean", {"kind": "symmetric", "rate": 0.1}, "reserved"),
        ("noisy.digits.tuning.n20_s0", {"kind": "symmetric", "rate": 0.1}, "both reported and used for tuning"),
        ("noisy.digits.recipe.base", "digit", r"no recipe 'digit'; did you mean digits"),
        ("noisy.digits.recipe.epochs", 0, "noisy.digits.recipe.epochs"),
        ("ood.digits_id.auxiliary", "digits_near", "must be disjoint"),
        ("ood.digits_id.auxiliary", "digits_id", "digits_id is the ID dataset itself"),
        ("ood.digits_id.near", ["digits_id"], "digits_id is the ID dataset itself"),
        ("ood.digits_id.far", ["digits_near"], "is also in ood.digits_id.near"),
        ("ood.digits_id.validation", {"set": "digits_id", "images": 9}, "digits_id is the ID dataset itself"),
        ("ood.digits_id.near", ["digits_nea"], r"no dataset 'digits_nea'"),
        ("params.mixup", {"alpha": -1}, "params.mixup.alpha"),
        ("params.mixup", {"alfa": 1}, "params.mixup.alfa: no such hyper-parameter; there are: alpha"),
        ("params.mixupp", {"alpha": 1}, r"no method 'mixupp'; did you mean mixup"),
        ("variants.sce", {"odd": {"beta": -2}}, "variants.sce.odd.beta"),
        (
            "tables.t",
            {"kind": "noise_grid", "dataset": "digits", "settings": ["n20"]},
            r"tables\.t \(.*settings\): no setting",
        ),
        (
            "tables.t",
            {"kind": "noise_grid", "dataset": "digts"},
            r"tables\.t\.dataset: no noisy dataset 'digts'; did you",
        ),
        ("tables.t", {"kind": "noise_grid", "dataset": "digits", "setings": []}, r"tables\.t\.setings: no such key"),
        ("tables.t", {"kind": "noise_sets", "sets": [{"dataset": "digits"}]}, r"tables\.t \(noisy.*no setting ''"),
        (
            "tables.t",
            {"kind": "noise_sets", "sets": [{"dataset": "digits", "setting": "x"}]},
            r"settings\): no setting 'x'",
        ),
        (
            "tables.t",
            {"kind": "noise_sets", "sets": [{"dataset": "x", "setting": "x"}]},
            r"sets\.0: no noisy dataset 'x'",
        ),
        (
            "tables.t",
            {"kind": "noise_sets", "methods": ["lss"]},
            r"tables\.t\.methods: no method 'lss'; did you mean loss",
        ),
        ("tables.t", {"kind": "ood", "datasets": ["digitz"]}, r"tables\.t\.dataset: no ood dataset 'digitz'"),
        ("tables.t", {"kind": "ood", "methods": ["mspp"]}, r"tables\.t\.methods: no method 'mspp'; did you mean msp"),
        ("tables.t", {"kind": "cost", "datasets": ["digitz"]}, r"tables\.t\.dataset: no noisy dataset 'digitz'"),
        ("tables.t", {"kind": "ablation", "methods": ["sgoif"], "ood": "digitz"}, r"tables\.t\.ood: no ood dataset"),
        ("noisy.digits.settings", {"s": {"kind": "symmetric", "rate": 0.1}}, r"tables\.table1: a noise_grid needs"),
        ("tables.t", {"kind": "noise_grid", "dataset": "cifar10"}, r"tables\.t\.dataset: noisy has no cifar10; add it"),
        ("noisy.digits.seeds", [2**32], r"noisy\.digits\.seeds\.0: 4294967296 is greater than the maximum"),
        ("noisy.digits.settings.x", {"kind": "symmetric", "rate": 0.1, "seed": 2**32}, r"settings\.x\.seed: expected"),
        (
            "noisy.digits.settings.x",
            {"kind": "symmetric", "rate": 0.1, "size": 10**5},
            r"^noisy\.digits\.settings\.x\.size: 100000 images cannot be kept, there are 1438",
        ),
        ("noisy.digits.val", 359, r"noisy\.digits\.val: 359 of 359 test images cannot be set aside"),
        ("ood.digits_id.val", 10**9, r"ood\.digits_id\.val: 1000000000 of"),
        ("run", "published", "run: 'published' is reserved"),
        ("run", "mini\n", "run: "),
        ("run", "../escape", "run: "),
        ("run", "a; rm -rf x", "run: "),
    ],
)
def test_mistakes_are_named(path, value, told):
    with pytest.raises(UserError, match=told):
        resolve_config(changed(path, value))


@pytest.mark.parametrize("kind", VARIANT_KINDS)
def test_a_table_of_variants_needs_rows(kind):
    without = changed("noisy.digits.methods", ["loss", "margin"])
    without["tables"] = {"t": {"kind": kind, "dataset": "digits"}}
    with pytest.raises(UserError, match=r"tables\.t: name its rows in `methods`"):
        resolve_config(without)
    resolve_config({**without, "tables": {"t": {"kind": kind, "dataset": "digits", "methods": ["loss", "margin"]}}})


@pytest.mark.parametrize(
    "root",
    [
        *("/", "//", "/etc", "/etc/data", "/usr/share/x", "/usr/../etc", "/proc/self", "/home", "/var", "/dev/shm"),
        *(
            "/dev/x",
            "~",
            "~/data",
            "results",
            "results/mini/data",
            "./results/../results",
            str(Path.home()),
            "link/data",
        ),
    ],
)
def test_data_does_not_go_where_other_things_are(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("/etc", target_is_directory=True)
    with pytest.raises(UserError, match=r"^data\.root: "):
        resolve_config(changed("data.root", root))


@pytest.mark.parametrize("root", ["data", "../data", "/mnt/data", "/var/scratch/me", "/dev/shm/data", "/scratch"])
def test_data_may_go_anywhere_else(root):
    assert resolve_config(changed("data.root", root))["data"]["root"] == root


def test_layers_merge_and_can_not_chase_their_tail(tmp_path):
    (tmp_path / "below.yaml").write_text("a: {x: 1, y: 2}\nb: [1, 2]\n")
    assert layer({"extends": "below.yaml", "a": {"y": 3}, "b": [9]}, tmp_path) == {
        "a": {"x": 1, "y": 3},
        "b": [9],
    }
    (tmp_path / "between.yaml").write_text("extends: below.yaml\na: {y: 4}\n")
    assert layer({"extends": "between.yaml", "a": None}, tmp_path) == {"b": [1, 2]}
    (tmp_path / "loop.yaml").write_text("extends: loop.yaml\n")
    with pytest.raises(UserError, match="extends itself"):
        layer({"extends": "loop.yaml"}, tmp_path)


def test_a_mistake_names_the_file_and_those_that_it_extends(tmp_path):
    low, mid, top = (tmp_path / f"{name}.yaml" for name in ("low", "mid", "top"))
    low.write_text(yaml.safe_dump(SMALL))
    mid.write_text("extends: low.yaml\nrun: mid\nrecipes: {digits: {epochz: 3}}\n")
    top.write_text("extends: mid.yaml\nrun: top\n")
    for path, chain in ((top, "mid.yaml, low.yaml"), (mid, "low.yaml")):
        with pytest.raises(UserError) as told:
            load_config(path)
        assert str(told.value) == f"{path} (extends {chain}): recipes.digits.epochz: no such key; did you mean epochs?"
    low.write_text("run: low\nseeds: [0\n")
    with pytest.raises(UserError, match=rf"^{mid}: {low} is not valid YAML"):
        load_config(mid)
    mid.write_text("extends: mid.yaml\nrun: mid\n")
    with pytest.raises(UserError, match=rf"^{mid} \(extends mid\.yaml\): extends: mid\.yaml extends itself$"):
        load_config(mid)
    mid.write_text("run: mid\n")
    with pytest.raises(UserError, match=rf"^{mid}: configuration: the key "):
        load_config(mid)


@pytest.mark.parametrize("name", ["embedded", "cifar", "paper", "ood-trained"])
def test_no_variant_is_run_for_nobody(name):
    config = load_config(ROOT / "configs" / f"{name}.yaml", skip_missing=False)
    shown = {method for table in config["tables"].values() for method in table.get("methods", [])}
    specs = [(task, spec) for task in ("noisy", "ood") for spec in config[task].values()]
    run = {(task, method) for task, spec in specs for method in spec["methods"] if "@" in method}
    for_nobody = [m for task, m in run if m not in shown and not registry.has_row(task, m)]
    assert run and not for_nobody


def test_every_key_of_the_schema_is_described():
    def visit(rule, path):
        for key, sub in rule.get("properties", {}).items():
            assert sub.get("description"), f"{path}.{key} has no description"
            visit(sub, f"{path}.{key}")

    whole = read_schema()
    visit(whole, "config")
    for name, rule in whole["$defs"].items():
        visit(rule, name)


leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=8)
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(path for path, _ in walk(SMALL))), anything)
def test_fuzz_no_value_anywhere_gives_anything_but_a_user_error(path, value):
    try:
        resolve_config(changed(path, value))
    except UserError as e:
        assert "\n" not in str(e)[:200] or len(str(e)) < 2000


def test_null_takes_a_key_of_the_layer_below_away():
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": None}, "d": None}) == {"a": {"c": 2}}


def test_a_method_can_be_restricted_to_settings_and_seeds(tmp_path):
    from sgoif.bench.execution.plan import Plan

    config = copy.deepcopy(SMALL)
    spec = config["noisy"]["digits"]
    first, method = next(iter(spec["settings"])), "loss"
    spec["seeds"] = [0, 1]
    spec["restrict"] = {method: {"settings": [first], "seeds": [1], "reason": "costly"}}
    spec["retrain"] = [method]
    plan = Plan(resolve_config(config))
    cells = [c for n in range(plan.n_batches("noisy", "digits")) for c in plan.batch("noisy", "digits", method, n)]
    assert [(c.setting, c.seed) for c in cells] == [(first, 1)]
    assert plan.retrains(cells[0]) and plan.cell_config(cells[0])["retrain"]
    other = plan.batch("noisy", "digits", "plain", 0)
    assert len(other) > 1 and "retrain" not in plan.cell_config(other[0])


def test_a_limit_for_a_method_that_is_left_out_has_no_effect():
    spec = changed("noisy.digits.restrict", {"gce": {"settings": ["nowhere"], "reason": "costly"}})
    spec["noisy"]["digits"]["retrain"] = {"gce": {"seeds": [7]}, "loss": {}}
    spec["methods"] = {"noisy": ["loss"], "ood": []}
    assert resolve_config(spec)["noisy"]["digits"]["methods"] == ["loss"]
    spec["methods"] = {"noisy": ["loss", "gce"], "ood": []}
    with pytest.raises(UserError, match=r"restrict\.gce\.settings: no setting 'nowhere'"):
        resolve_config(spec)


def test_rows_of_a_table_run_where_it_shows_them_unless_they_are_restricted_themselves():
    from sgoif.bench.execution.plan import Plan

    config = copy.deepcopy(SMALL)
    spec = config["noisy"]["digits"]
    setting = next(iter(spec["settings"]))
    spec["seeds"] = [0, 1]
    spec["restrict"] = {"sgoif@b": {"settings": [setting], "seeds": [1], "reason": "costly"}}
    config["variants"] = {"sgoif": {"a": {"gate": "none"}, "b": {"gate": "none"}}}
    rows = ["sgoif", "sgoif@a", "sgoif@b"]
    config["tables"] = {"t": {"kind": "ablation", "methods": rows, "sets": [{"dataset": "digits", "setting": setting}]}}
    plan = Plan(resolve_config(config))
    run = {m: [(c.setting, c.seed) for c in plan.cells("noisy", "digits", m) if plan.wanted(c)] for m in rows[1:]}
    assert run == {"sgoif@a": [(setting, 0), (setting, 1)], "sgoif@b": [(setting, 1)]}
    spec["restrict"]["sgoif@b"]["seeds"] = [7]
    with pytest.raises(UserError, match=r"noisy\.digits\.restrict\.sgoif@b\.seeds: no seed '7'"):
        resolve_config(config)


def test_retraining_with_the_same_number_is_asked_for_by_name():
    from sgoif.bench.execution.plan import Cell, Plan

    config = copy.deepcopy(SMALL)
    spec = config["noisy"]["digits"]
    first, *others = spec["settings"]
    cells = {s: Cell("noisy", "digits", s, 0, "loss") for s in spec["settings"]}
    plan = Plan(resolve_config(config))
    assert not any(plan.retrains_same(cell) or "retrain_same" in plan.cell_config(cell) for cell in cells.values())
    spec["retrain_same"] = {"loss": {"settings": [first]}}
    plan = Plan(resolve_config(config))
    assert [s for s, cell in cells.items() if plan.retrains_same(cell)] == [first] and others
    assert plan.cell_config(cells[first])["retrain_same"] is True
    assert not plan.retrains_same(Cell("noisy", "digits", first, 0, "plain"))
    spec["retrain_same"] = {"lss": {}}
    with pytest.raises(UserError, match=r"noisy\.digits\.retrain_same: no method 'lss'; did you mean loss"):
        resolve_config(config)


def test_retraining_can_be_left_to_some_settings_and_seeds():
    from sgoif.bench.execution.plan import Cell, Plan

    config = copy.deepcopy(SMALL)
    spec = config["noisy"]["digits"]
    first, *others = spec["settings"]
    share = {"seeds": [1], "besides": [{"settings": [first], "seeds": [2]}]}
    spec["seeds"], spec["retrain"] = [0, 1, 2], {"loss": share}
    plan = Plan(resolve_config(config))

    def retrained(method):
        cells = [Cell("noisy", "digits", s, seed, method) for s in spec["settings"] for seed in spec["seeds"]]
        return [(c.setting, c.seed) for c in cells if plan.cell_config(c)["retrain"]]

    assert others
    assert set(retrained("loss")) == {(first, 1), (first, 2), *((s, 1) for s in others)}
    assert retrained("random") == []
    share["besides"][0]["seeds"] = [3]
    with pytest.raises(UserError, match=r"noisy\.digits\.retrain\.loss\.besides\.0\.seeds: no seed '3'"):
        resolve_config(config)


def test_a_method_is_run_on_its_share_and_besides():
    from sgoif.bench.execution.plan import Plan

    config = copy.deepcopy(SMALL)
    spec = config["noisy"]["digits"]
    first = next(iter(spec["settings"]))
    more = [{"settings": [first], "seeds": [2]}]
    spec["seeds"], spec["restrict"] = [0, 1, 2], {"loss": {"seeds": [0], "besides": more, "reason": "too long"}}
    cells = Plan(resolve_config(config)).batch("noisy", "digits", "loss", 0)
    assert {(c.setting, c.seed) for c in cells} == {(first, 2), *((s, 0) for s in spec["settings"])}


@pytest.mark.parametrize(
    ("share", "told"),
    [
        ({"lss": {"reason": "x"}}, "noisy.digits.restrict: no method 'lss'"),
        ({"loss": {"reason": "x", "seeds": [7]}}, "noisy.digits.restrict.loss.seeds: no seed '7'"),
        ({"loss": {"seeds": [0]}}, "reason"),
        ({"loss": {"reason": "x", "seed": [0]}}, r"restrict\.loss\.seed: no such key; did you mean s"),
        ({"loss": {"reason": "x", "besides": [{"seed": [0]}]}}, r"besides\.0\.seed: no such key; did you mean s"),
        ({"loss": {"reason": "x", "besides": [{"seeds": [7]}]}}, r"restrict.loss.besides.0.seeds: no seed '7'"),
    ],
)
def test_a_wrong_restriction_is_refused(share, told):
    with pytest.raises(UserError, match=told):
        resolve_config(changed("noisy.digits.restrict", share))


def test_hyper_parameters_that_the_starting_process_has_checked_are_not_checked_again(monkeypatch):
    """Checking them loads torch, which Snakemake does not need to plan."""
    wrong, other = changed("params.mixup", {"alfa": 1}), changed("params.mixup", {"alfa": 2})
    whole = {"params": wrong["params"], "variants": {}}
    monkeypatch.setenv(CHECKED_PARAMS, params_digest(whole))
    assert resolve_config(wrong)["params"] == wrong["params"]
    with pytest.raises(UserError, match="no such hyper-parameter"):
        resolve_config(other)


def test_the_schema_has_the_names_of_all_models():
    known = read_schema()["$defs"]["recipe"]["properties"]["model"]["pattern"]
    assert re.match(r"\^\(([a-z0-9_|]+)\|timm:", known)[1].split("|") == list(MODELS)


def test_the_schema_and_the_page_of_settings_have_every_kind_of_noise():
    kinds = set(KINDS) - {"clean"}
    assert set(read_schema()["$defs"]["noise"]["properties"]["kind"]["enum"]) == kinds
    page = (ROOT / "docs" / "benchmark" / "settings.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page.split("## Noise")[1].split("##")[0], re.M)) == kinds


def test_a_method_that_trains_on_auxiliary_images_needs_some():
    config = changed("methods.ood", ["msp", "udg"])
    resolve_config(config)
    del config["ood"]["digits_id"]["auxiliary"]
    with pytest.raises(UserError, match="udg trains on unlabelled images of other classes; say which by"):
        resolve_config(config)
