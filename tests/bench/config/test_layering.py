"""Files laid over each other: mappings merge, null takes away, `replace: true` takes the place of what is below."""

import pytest
import yaml

from sgoif.bench.config.layering import layer
from sgoif.errors import UserError

BASE = {
    "run": "base",
    "noisy": {"digits": {"seeds": [0, 1], "settings": {"a": {"kind": "symmetric", "rate": 0.2}, "b": {"kind": "x"}}}},
}


@pytest.fixture
def over(tmp_path):
    """Lays mappings over base.yaml, the last on top, and returns the merged configuration."""
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(BASE))

    def lay(*layers: dict) -> dict:
        below = "base.yaml"
        for number, one in enumerate(layers[:-1]):
            (tmp_path / f"middle{number}.yaml").write_text(yaml.safe_dump({"extends": below, **one}))
            below = f"middle{number}.yaml"
        return layer({"extends": below, **layers[-1]}, tmp_path)

    return lay


def settings(value: dict) -> dict:
    return {"noisy": {"digits": {"settings": value}}}


def test_a_mapping_merges_unless_it_replaces(over):
    new = {"c": {"kind": "human"}}
    assert set(over(settings(new))["noisy"]["digits"]["settings"]) == {"a", "b", "c"}
    merged = over(settings({"replace": True, **new}))
    assert merged["noisy"]["digits"] == {"seeds": [0, 1], "settings": new}


def test_what_replaces_is_a_layer_like_any_other(over):
    middle = settings({"replace": True, "c": {"kind": "human"}})
    merged = over(middle, settings({"d": {"kind": "symmetric"}}))
    assert set(merged["noisy"]["digits"]["settings"]) == {"c", "d"}
    merged = over(middle, settings({"replace": True, "d": {"kind": "symmetric"}}))
    assert set(merged["noisy"]["digits"]["settings"]) == {"d"}


def test_one_setting_can_be_replaced_and_a_list_becomes_a_mapping(over):
    merged = over(settings({"a": {"replace": True, "kind": "human", "column": "x"}}))["noisy"]["digits"]
    assert merged["settings"]["a"] == {"kind": "human", "column": "x"} and "b" in merged["settings"]
    merged = over({"noisy": {"digits": {"seeds": {"replace": True, "first": 1}}}})
    assert merged["noisy"]["digits"]["seeds"] == {"first": 1}


def test_a_name_may_be_replace_as_long_as_it_names_a_mapping(over):
    assert over(settings({"replace": {"kind": "human"}}))["noisy"]["digits"]["settings"]["replace"] == {"kind": "human"}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (settings({"replace": False}), r"noisy\.digits\.settings\.replace: only `true` has a meaning here, got False"),
        (settings({"replace": "yes"}), r"noisy\.digits\.settings\.replace: only `true`"),
        (settings({"c": {"replace": True}}), r"there is no noisy\.digits\.settings\.c below this file to replace"),
        (settings({"replace": True, "a": {"replace": True}}), r"there is no noisy\.digits\.settings\.a below"),
        ({"replace": True}, r"^replace: a file as a whole replaces nothing; leave out `extends`"),
    ],
)
def test_mistakes_are_told_by_their_key(over, value, told):
    with pytest.raises(UserError, match=told):
        over(value)


def test_the_lowest_file_replaces_nothing(tmp_path):
    with pytest.raises(UserError, match="there is no noisy below this file to replace"):
        layer({"run": "x", "noisy": {"replace": True}}, tmp_path)


def test_a_mapping_that_contains_itself_is_one_line(tmp_path):
    loop: dict = {"run": "x", "noisy": {}}
    loop["noisy"]["digits"] = loop
    with pytest.raises(UserError, match="contains itself"):
        layer(loop, tmp_path)
