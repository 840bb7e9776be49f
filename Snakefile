# Every table of the paper, from data to Markdown: `snakemake --cores all` (add `--use-conda` for a conda environment).
#
#   configs/embedded.yaml is the default; another run: `snakemake --cores all --configfile configs/cifar.yaml`

import sys
from pathlib import Path

sys.path.insert(0, workflow.basedir)


if not workflow.overwrite_configfiles:

    configfile: str(Path(workflow.basedir, "configs", "embedded.yaml"))


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/shared.smk"
include: "workflow/rules/methods.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/fidelity.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/ledger.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/tracking.smk"


report: "workflow/report/workflow.rst"


# What a selection (METHODS=, SETTINGS=, SEEDS=, DATASETS=) does without: it is a look at some numbers.
OF_WHOLE_RUN = [
    *FIGURES,
    f"{RUN}/ledger.md",
    f"{RUN}/report.html",
    f"{RUN}/mlflow/imported.json",
]


rule all:
    default_target: True
    input:
        f"{RUN}/summary.json",
        expand(f"{RUN}/tables/{{table}}.md", table=CONFIG["tables"]),
        FIDELITY_TABLES,
        [] if "select" in CONFIG else OF_WHOLE_RUN,


rule tuning:
    input:
        [f"{RUN}/metrics/tuning/{dataset}.json" for dataset in PLAN.datasets("tuning")],
