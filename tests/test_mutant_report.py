"""The page about mutants, and the list of those that do not matter."""

from sgoif.utils.paths import ROOT
from tests.mutants.report import killed_share, page
from tests.mutants.sites import SourceFile
from tests.mutants.survivors import Survivor, read_survivors, reason_for

KNOWN = {"command": "python -m tests.mutants", "occasion": "a day"}
REASON = "twice is twice"


def record(kind: str, outcome: str, after: str) -> dict:
    diff = ["-    return x + x", f"+    return {after}"]
    place = {"file": "sgoif/double.py", "line": 2, "function": "double", "before": "x + x"}
    return {**place, "kind": kind, "after": after, "diff": diff, "outcome": outcome, "ran": ["tests/test_double.py"]}


WRONG, EQUAL = record("wrong", "killed", "x - x"), record("equal", "survived", "2 * x")
SAME = {name: EQUAL[name] for name in ("file", "function", "before")}


def test_the_page_lists_the_survivor_with_its_diff():
    text = page([WRONG, EQUAL], KNOWN, [])
    assert "2 mutants: 1 killed, 0 timeout, 1 survived, 0 untested. **50.0% were noticed.**" in text
    assert "Of the 1 others 0 have no effect that a test could see, 0 have got a test since, 1 are gaps." in text
    assert "`sgoif/double.py:2` double (equal)\n" in text and "+    return 2 * x" in text
    assert "Ran: `tests/test_double.py`" in text and "`python -m tests.mutants`, a day." in text
    assert "+    return x - x" not in text and "| `sgoif` | 2 | 50% |" in text


def test_a_time_limit_counts_as_noticed_and_is_listed():
    late = record("late", "timeout", "x * x")
    text = page([WRONG, late], KNOWN, [])
    assert killed_share([WRONG, late]) == 1 and killed_share([]) == 0
    assert "## Ran into the time limit" in text and "+    return x * x" in text
    assert killed_share([record("no test", "untested", "x")]) == 0


def test_a_survivor_that_does_not_matter_is_listed_with_its_reason():
    text = page([WRONG, EQUAL], KNOWN, [Survivor(**SAME, reason=REASON)])
    assert "Of the 1 others 1 have no effect that a test could see, 0 have got a test since, 0 are gaps." in text
    assert f"double (equal): {REASON}" in text and "Ran:" not in text and "## Not noticed: gaps" not in text


def test_a_survivor_that_has_a_test_by_now_is_listed_with_it():
    text = page([WRONG, EQUAL], KNOWN, [], [Survivor(**SAME, reason="tests/test_double.py")])
    assert "0 have no effect that a test could see, 1 have got a test since, 0 are gaps." in text
    assert "double (equal): tests/test_double.py" in text and "## Not noticed: gaps" not in text


def test_an_entry_covers_its_own_change_alone():
    for other in ({"function": "triple"}, {"before": "x"}, {"after": "3 * x"}, {"within": "return y"}):
        assert not Survivor(**{**SAME, "reason": REASON, **other}).covers(EQUAL), other
    for other in ({}, {"after": "2 * x"}, {"within": "return x"}):
        assert reason_for(EQUAL, [Survivor(**SAME, reason=REASON, **other)]) == REASON


def test_every_listed_survivor_is_still_a_change_of_the_code():
    for survivor in read_survivors():
        source = SourceFile(survivor.file, (ROOT / survivor.file).read_text())
        sites = [site for site in source.sites() if site.function == survivor.function]
        sites = [site for site in sites if source.text_of(site) == survivor.before]
        mutants = [source.mutant(site, i) for site in sites for i in range(len(site.edits))]
        records = [{**vars(m), "diff": m.diff(source.text.decode())} for m in mutants if m is not None]
        assert any(map(survivor.covers, records)), f"no longer a change of {survivor.file}: {survivor}"
        assert len(survivor.reason) > 20
