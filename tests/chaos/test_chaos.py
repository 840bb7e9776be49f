"""Eleven faults in the normal suite; all of them with `pytest -m slow tests/chaos` or `make chaos`."""

import pytest

from tests.chaos import corners, faults, network
from tests.chaos.__main__ import main
from tests.chaos.driver import LOST, SAME, Chaos
from tests.chaos.project import RUN, TABLES
from tests.helpers.project_copy import import_nothing_beforehand


class Records(list):
    def note(self, fault, moment, outcome, said=""):
        self.append({"fault": fault, "moment": moment, "outcome": outcome, "said": said})

    def lost(self):
        return [r for r in self if r["outcome"] == LOST]


def test_downloads_survive_a_bad_network(tmp_path):
    records = Records()
    chosen = ("breaks half-way", "wrong bytes", "log-in page", "not HTTP", "no length")
    names = [n for n in network.FAULTS if any(c in n for c in chosen)]
    network.downloads(tmp_path, records.note, names)
    network.killed(tmp_path, records.note)
    assert len(records) == 6 and not records.lost(), records.lost()


def test_a_run_survives_kills_and_damage(tmp_path):
    chaos = Chaos(tmp_path, TABLES, f"{RUN}/report.html")
    chaos.targets = (TABLES,)  # figures and page are there, and need not be made after every fault
    import_nothing_beforehand(chaos.project.folder)
    chaos.project.forget("summary.json", "tables")
    chaos.project.umask = 0o000  # what is made from here on is still not for others to write
    power = "not yet on the disk: a table"
    kills = ("assembling: summary sealed, not yet named", "assembling tables: Markdown written, LaTeX not")
    chaos.kills_from_here([*kills, power], {**faults.KILLS, **faults.POWER})
    assert [r["outcome"] for r in chaos.records] == [SAME] * 3, chaos.records
    tables = (chaos.project.folder / TABLES).parent
    assert not corners.wrong_modes(tables.iterdir(), mask=0o000)
    chaos.project.umask = -1
    chaos.damages(d for d in faults.DAMAGES if d.path in ("summary.json", "tables/table1.md") and d.how == "digit")
    assert len(chaos.records) == 5
    assert not [r for r in chaos.records if r["outcome"] == LOST], chaos.records


@pytest.mark.slow
def test_every_fault(tmp_path):
    assert main(tmp_path) == 0, (tmp_path / "chaos.md").read_text()
