"""What a method's rule file says."""

from __future__ import annotations

from sgoif.utils.paths import ROOT

RULES = ROOT / "workflow" / "rules"
RULE = """use rule method as {task}_{name} with:
    input:
        **reads("{task}", "{name}"),
    output:
        batch_file("{task}", "{name}"),
    log:
        log_file("{task}", "{name}"),
    params:
        **job("{name}"),
"""


def check_rule(task: str, name: str) -> None:
    """Fail unless the method has a rule, whose inputs follow from the declaration of this very method."""
    path = RULES / task / f"{name}.smk"
    assert path.is_file(), f"{name} has no rule {path}"
    text = path.read_text()
    for line in RULE.format(task=task, name=name).splitlines():
        assert line in text.splitlines(), f"{path} lacks the line {line.strip()!r}"
