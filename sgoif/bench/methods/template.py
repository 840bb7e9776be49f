"""Writes the two files of a new method, from a template that already keeps the contract: `make new-baseline`."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from sgoif.bench.methods.registry import FOLDER, SHARED, TASKS
from sgoif.errors import UserError

RULES = FOLDER.parent / "workflow" / "rules"
TAKEN_NAMES = (*SHARED, "template", "val")  # shared runs and inputs, which lie in the same folders as methods

NOISY = '''"""{title}: say here what it is, who published it (authors, venue, year) and where.

    s_i = 1 - p(x_i)[y_i]        at the end of the plain run

The formula above is the template's: one minus the probability of the label. Replace both.

Paper: title and venue.
Code: the authors' code.
Settings: where the defaults come from.
Deviations: what differs from the authors' code.
Score: what ranks.
"""

from __future__ import annotations

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.tasks import NoisyTask


class {kind}(NoisyLabelDetector):
    name = "{name}"
    title = "{title}"  # as shown in tables, figures and the report
    group = "Others"  # heading in tables
    reads_plain = True  # post-processes the shared plain run; False: trains itself, see sce.py and coteaching.py

    def detect(self, task: NoisyTask) -> Detection:
        """Higher score = more suspicious label."""
        probabilities = task.plain.logits.softmax(1)  # [N, K]
        of_label = probabilities.gather(1, task.labels.unsqueeze(1)).squeeze(1)  # [N]
        return Detection((1 - of_label).cpu().numpy())
'''

OOD = '''"""{title}: say here what it is, who published it (authors, venue, year) and where.

    s(x) = - sum_k p_k log p_k,   p = softmax(f(x))

The formula above is the template's: the entropy of the prediction. Replace both.

Paper: title and venue.
Code: the authors' code.
Settings: where the defaults come from.
Deviations: what differs from the authors' code.
Score: what ranks.
"""

from __future__ import annotations

from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.training.images import ImageSource


class {kind}(OODDetector):
    name = "{name}"
    title = "{title}"  # as shown in tables, figures and the report
    group = "Others"  # heading in tables

    def score(self, images: ImageSource) -> Tensor:
        """Score images, shape [n]; higher = more out-of-distribution. What `fit(task)` keeps can be used here."""
        log_p = self.logits(images).log_softmax(1)
        return -(log_p.exp() * log_p).sum(1)
'''

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


def new_baseline(task: str, name: str) -> tuple[Path, Path]:
    """Write `baselines/<task>/<name>.py` and its rule.

    Args:
        task: `noisy` or `ood`.
        name: Name of the method.

    Returns:
        Paths of the two files.

    Raises:
        UserError: If the name cannot be one of a method, or one of the files exists.
    """
    if task not in TASKS:
        raise UserError(f"TASK={task}: choose one of {', '.join(TASKS)}")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UserError(f"NAME={name}: use small letters, digits and _, beginning with a letter, and no Python keyword")
    if name in TAKEN_NAMES:
        raise UserError(f"NAME={name}: this is the name of something the workflow shares; choose another")
    code, rule = FOLDER / task / f"{name}.py", RULES / task / f"{name}.smk"
    for path in (code, rule):
        if path.exists():
            raise UserError(f"{path.relative_to(FOLDER.parent)} is there already; choose another NAME or edit it")
    words = name.split("_")
    named = {"name": name, "task": task, "title": " ".join(w.capitalize() for w in words if w)}
    template = {"noisy": NOISY, "ood": OOD}[task]
    code.write_text(template.format(kind="".join(w.capitalize() for w in words), **named))
    rule.write_text(RULE.format(**named))
    return code, rule
