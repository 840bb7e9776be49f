# What all rules use: the checked configuration, the plan, and the names of files.

import math
import shlex
from pathlib import Path

from snakemake.exceptions import WorkflowError

from sgoif.bench.config import digest, read_yaml, resolve_config
from sgoif.bench.config.ood_sets import other_sets
from sgoif.bench.data.noisy_labels import required_datasets, setting_files
from sgoif.errors import UserError
from sgoif.bench.execution.fingerprint import source_hash
from sgoif.bench.execution.plan import Plan
from sgoif.bench.methods import registry
from sgoif.bench.methods.registry import FOLDS, PLAIN
from sgoif.bench.run_folder import check_writable, folder_of
from sgoif.bench.run_folder import hold_run_lock, write_config

GIVEN = [Path(path) for path in workflow.overwrite_configfiles]

try:
    for path in GIVEN:
        read_yaml(path)  # Snakemake's own reader lets pass what this one refuses
    CONFIG = resolve_config(
        config, GIVEN[-1].parent if GIVEN else Path(workflow.basedir, "configs")
    )
except UserError as e:
    raise WorkflowError(f"configuration: {e}") from None

PLAN = Plan(CONFIG)
RUN = str(folder_of(CONFIG))
DATA = CONFIG["data"]["root"]
CONFIG_FILE = f"{RUN}/config.json"
ENVIRONMENT = str(Path(workflow.basedir, "environment.yml"))
THREADS = CONFIG["execution"]["threads"]
ON_GPU = CONFIG["execution"]["device"] != "cpu"
STEP = f"python -m sgoif.bench {{step}} --config {CONFIG_FILE}"


# Only when jobs start, so that a plan writes nothing. Not an input of any job: a job depends on its own part of the
# configuration, through its fingerprint.
onstart:
    try:
        hold_run_lock()
        check_writable(RUN)
        write_config(RUN, CONFIG)
    except UserError as e:
        raise WorkflowError(str(e)) from None


wildcard_constraints:
    task="noisy|tuning|ood",
    dataset=r"[A-Za-z0-9_]+",
    setting=r"(?!val\b)[a-z0-9_]+",
    draw=r"(\.draw[0-9]+)?",
    variant="(@[a-z0-9_]+)?",
    batch="[0-9]+",


def meta(dataset):
    return f"{DATA}/{dataset}/meta.json"


def prepare_options(w, output):
    """Options of `prepare`: where to look for a dataset and where to put it.

    Prepared arrays are compared with known hashes, so they are the same wherever they came from. Snakemake leaves
    params that are computed from the output out of its comparison: a run with another mirror, or another run's folder,
    does not make the data stale.
    """
    data = CONFIG["data"]
    mirror = f" --mirror {shlex.quote(data['mirror'])}" if data["mirror"] else ""
    return f"--root {shlex.quote(DATA)}{mirror}{'' if data['download'] else ' --no-download'}"


def starts(w):
    """Weights that the networks of a dataset start from."""
    return [meta(name) for name in PLAN.starts(w.task, w.dataset)]


def images(w):
    """Images a method's job may read: of its dataset and, for OOD, of the sets it scores."""
    spec = PLAN.spec(w.task, w.dataset)
    return [meta(name) for name in (w.dataset, *other_sets(spec))] + starts(w)


def labels(w):
    """Noisy labels of all cells of the batch; a restricted method computes some of them only."""
    cells = PLAN.batch_slots(w.task, w.dataset, PLAIN, int(w.batch))
    files = [
        setting_files(RUN, w.dataset, cell.setting, PLAN.draw(cell)) for cell in cells
    ]
    return sorted({str(file.labels) for file in files})


def draw_number(w):
    """Number of a draw, from the end of its files' names."""
    return int(w.draw.removeprefix(".draw") or 0)


TASK = {"noisy": "{task,noisy|tuning}", "ood": "{task,ood}"}


def reads(kind, method):
    """Inputs of a method's rule, from what its class declares: shared runs, and images with trusted labels."""
    declared = registry.declaration(kind, method)
    files = {
        name: f"{RUN}/batches/{{task}}/{{dataset}}/{name}/{{batch}}.json"
        for name in declared.shared_runs
    }
    if kind == "ood" or declared.uses_trusted:
        files["val"] = f"{RUN}/labels/{{dataset}}/val.npz"
    if kind == "noisy" and FOLDS not in files:
        files["counted"] = lambda w: counted_by(w, method)
    return {"images": images, "labels": labels, **files}


def counted_by(w, method):
    """Folds that say how many examples all methods remove, where a batch is trained again with that number."""
    cells = PLAN.batch(w.task, w.dataset, method + w.variant, int(w.batch))
    folder = f"{RUN}/batches/{w.task}/{w.dataset}/{FOLDS}"
    return (
        [f"{folder}/{w.batch}.json"]
        if any(PLAN.retrains_same(cell) for cell in cells)
        else []
    )


def batch_file(kind, method):
    return f"{RUN}/batches/{TASK[kind]}/{{dataset}}/{method}{{variant}}/{{batch}}.json"


def log_file(kind, method):
    return f"{RUN}/logs/{{task}}/{{dataset}}/{method}{{variant}}-{{batch}}.log"


def job(method):
    """Params of a method's rule; the fingerprint changes exactly when the batch has to be computed again."""
    return {
        "step": STEP.format(step="batch"),
        "method": lambda w: method + w.variant,
        "fingerprint": lambda w: PLAN.fingerprint(
            w.task, w.dataset, method + w.variant, int(w.batch)
        ),
    }


def gpus(w, rulename):
    """GPUs of a batch's job: one for each process that trains; a rule is named after its method."""
    method = rulename.removeprefix(f"{registry.task_kind(w.task)}_")
    return PLAN.processes(w.task, w.dataset, method) if ON_GPU else 0


def nodes(w, rulename):
    """Machines of the cluster that a batch's job needs."""
    return max(math.ceil(gpus(w, rulename) / CONFIG["execution"]["gpus_per_node"]), 1)


def minutes(w):
    """Time limit of a batch's job on a cluster: that of its cells, and some to start."""
    cells = PLAN.batch_slots(w.task, w.dataset, PLAIN, int(w.batch))
    return 10 + math.ceil(len(cells) * CONFIG["execution"]["time_limit_minutes"])


def batches(task, dataset, method):
    folder = f"{RUN}/batches/{task}/{dataset}/{method}"
    numbers = range(PLAN.n_batches(task, dataset))
    return [
        f"{folder}/{n}.json" for n in numbers if PLAN.batch(task, dataset, method, n)
    ]


def truth_sources(w):
    """Label corruption reads the dataset, for human noise the file of human labels, and a user's own file of labels."""
    noise = PLAN.noise(w.dataset, w.setting)
    own = [noise["path"]] if noise["kind"] == "file" else []
    return [*(meta(name) for name in required_datasets(w.dataset, noise)), *own]


def needs_val(w):
    """OOD networks are trained beside an ID validation set; noisy-label runs get no trusted label."""
    return [f"{RUN}/labels/{w.dataset}/val.npz"] if w.task == "ood" else []


def truth(w):
    settings = [] if w.task == "ood" else PLAN.settings(w.task, w.dataset)
    return [
        str(setting_files(RUN, w.dataset, setting, draw).truth)
        for setting in settings
        for draw in PLAN.draws(w.task, w.dataset, setting)
    ]


def cells_of(w):
    kind, methods = registry.task_kind(w.task), PLAN.methods(w.task, w.dataset)
    names = [registry.split_variant(m)[0] for m in methods]
    folds = any(registry.declaration(kind, name).reads_folds for name in names)
    measured = [PLAIN, *methods, *([FOLDS] if folds else [])]
    return [path for method in measured for path in batches(w.task, w.dataset, method)]
