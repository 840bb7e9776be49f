# From cells to metrics, curves, summary and tables. Only `evaluate` and `curves` read the truth.


rule evaluate:
    input:
        cells=cells_of,
        truth=truth,
        val=f"{RUN}/labels/{{dataset}}/val.npz",
        labels=lambda w: meta(w.dataset),
    output:
        f"{RUN}/metrics/{{task}}/{{dataset}}.json",
    log:
        f"{RUN}/logs/evaluate/{{task}}-{{dataset}}.log",
    conda:
        ENVIRONMENT
    params:
        step=STEP.format(step="evaluate"),
        code=source_hash("sgoif.bench.evaluation.evaluate"),
        cells=lambda w: digest(PLAN.spec(w.task, w.dataset)),
    shell:
        "{params.step} --task {wildcards.task} --dataset {wildcards.dataset:q} > {log:q} 2>&1"
        " || {{ tail -n 20 {log:q} >&2; exit 1; }}"


rule curves:
    input:
        cells=cells_of,
        truth=truth,
        labels=lambda w: meta(w.dataset),
    output:
        f"{RUN}/curves/{{task,noisy}}/{{dataset}}.json",
        f"{RUN}/curves/{{task,noisy}}/{{dataset}}_gallery.npz",
    log:
        f"{RUN}/logs/curves/{{task}}-{{dataset}}.log",
    conda:
        ENVIRONMENT
    params:
        step=STEP.format(step="curves"),
        code=source_hash("sgoif.bench.evaluation.detection_curves"),
        cells=lambda w: digest(PLAN.spec(w.task, w.dataset)),
    shell:
        "{params.step} --dataset {wildcards.dataset:q} > {log:q} 2>&1"
        " || {{ tail -n 20 {log:q} >&2; exit 1; }}"


rule summarise:
    input:
        [
            f"{RUN}/metrics/{task}/{dataset}.json"
            for task in ("noisy", "ood")
            for dataset in PLAN.datasets(task)
        ],
    output:
        f"{RUN}/summary.json",
        f"{RUN}/records.csv",
    log:
        f"{RUN}/logs/summarise.log",
    conda:
        ENVIRONMENT
    params:
        step=STEP.format(step="summarise"),
        code=source_hash(
            "sgoif.bench.evaluation.summary", "sgoif.bench.evaluation.tidy_records"
        ),
        tables=digest([CONFIG["tables"], CONFIG["not_run"]]),
    shell:
        "{params.step} > {log:q} 2>&1 || {{ tail -n 20 {log:q} >&2; exit 1; }}"


rule tables:
    input:
        f"{RUN}/summary.json",
    output:
        expand(
            f"{RUN}/tables/{{table}}.{{kind}}",
            table=CONFIG["tables"],
            kind=["md", "tex", "json"],
        ),
        [
            report(
                f"{RUN}/tables/{table}.csv",
                caption="../report/table.rst",
                category="Tables",
                labels={"table": table, "kind": spec["kind"].replace("_", " ")},
            )
            for table, spec in CONFIG["tables"].items()
        ],
    log:
        f"{RUN}/logs/tables.log",
    priority: 1  # the import into MLflow, longest of the last jobs, waits for it; figures fill the other cores
    conda:
        ENVIRONMENT
    params:
        step=STEP.format(step="tables"),
        code=source_hash("sgoif.bench.tables"),
        tables=digest(CONFIG["tables"]),
    shell:
        "{params.step} > {log:q} 2>&1 || {{ tail -n 20 {log:q} >&2; exit 1; }}"
