"""`make demo`: what it asks of Snakemake and what it shows."""

from pathlib import Path

import pytest

from sgoif.bench import demo
from sgoif.bench.cli import main
from sgoif.utils.paths import ROOT

PAGE = """# Table 1

- Mean over 2 seeds.

## P@1% (%)

| method | 20%  |
|--------|-----:|
| SG-OIF | 99.0 |

## AUC-PR (%)

| method | 20%      |
|--------|---------:|
| SG-OIF | **98.2** |
| random | 17.4     |

Ranks of 2 methods.
"""


@pytest.mark.parametrize("status", [0, 1])
def test_the_demonstration_makes_one_table_and_one_figure_and_shows_the_table(tmp_path, monkeypatch, capsys, status):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    asked = []

    def run(arguments):
        asked.extend(arguments)
        for path in map(Path, arguments[:-2]):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(PAGE)
        return status

    monkeypatch.setattr(demo, "run", run)
    assert main(["demo"]) == status
    figure = "results/demo/figures/table1_detection"
    assert asked == ["results/demo/tables/table1.md", f"{figure}.svg", f"{figure}.png", "--configfile", demo.CONFIG]
    said = capsys.readouterr().out
    if status:
        assert said == ""
    else:
        assert "AUC-PR (%), higher is better\n\n| method | 20%      |\n" in said and "99.0" not in said
        assert "\n| random | 17.4     |\n\nTable   results/demo/tables/table1.md" in said and f"{figure}.png" in said


def test_a_page_without_the_metric_is_refused(tmp_path):
    (tmp_path / "t.md").write_text(PAGE.replace("AUC-PR", "AUROC"))
    with pytest.raises(ValueError, match=r"t\.md has no section AUC-PR"):
        demo.section(tmp_path / "t.md", "AUC-PR")
