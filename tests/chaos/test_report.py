from sgoif.utils.files import read_json
from tests.chaos import report


def test_families_of_another_day_or_machine_keep_theirs(tmp_path, monkeypatch):
    def merge(family, machine, fault):
        monkeypatch.setattr(report.platform, "machine", lambda: machine)
        return report.merge(
            tmp_path, family, [{"fault": fault, "moment": "m", "outcome": "same", "said": ""}], ["a", "b"]
        )

    merge("a", "x86_64", "one")
    assert "x86_64" in (tmp_path / "chaos.md").read_text() and "(a)" not in (tmp_path / "chaos.md").read_text()
    both = merge("b", "aarch64", "two")
    assert [("x86_64" in r["machine"], r["fault"]) for r in both] == [(True, "one"), (False, "two")]
    text = (tmp_path / "chaos.md").read_text()
    assert " cores (a); " in text and " cores (b)." in text and "disturbed 2 times" in text
    assert read_json(tmp_path / "chaos.json")["faults"] == 2
