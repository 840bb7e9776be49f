"""What a method's rule file says it reads."""

import re

from sgoif.utils.paths import ROOT

RULES = ROOT / "workflow" / "rules"


def declared_needs(task: str, name: str) -> set[str]:
    path = RULES / task / f"{name}.smk"
    assert path.is_file(), f"{name} has no rule {path}"
    call = re.search(rf'reads\(\s*"{task}",\s*"{name}"([^)]*)\)', path.read_text())
    assert call, f"{path} does not say what {name} reads"
    return set(re.findall(r'"(\w+)"', call[1]))
