# From cells to metrics, summary and tables. Only these rules read the truth.


def truth(w):
    settings = [] if w.task == "ood" else PLAN.settings(w.task, w.dataset)
    return [f"{RUN}/truth/{w.dataset}/{setting}.npz" for setting in settings]


def cells_of(w):
    kind = "ood" if w.task == "ood" else "noisy"
    methods = PLAN.methods(w.task, w.dataset)
    folds = any("folds" in NEEDS[kind, m.split("@")[0]] for m in methods)
    measured = ["plain", *methods, *(["folds"] if folds else [])]
    return [path for method in measured for path in batches(w.task, w.dataset, method)]


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
        code=source_hash("sgoif.bench.evaluate"),
        cells=lambda w: configuration.digest(PLAN.spec(w.task, w.dataset)),
    shell:
        "{params.step} --task {wildcards.task} --dataset {wildcards.dataset:q} > {log:q} 2>&1"
        " || {{ tail -n 20 {log:q} >&2; exit 1; }}"


rule summarise:
    input:
        [f"{RUN}/metrics/{task}/{dataset}.json" for task in ("noisy", "ood") for dataset in PLAN.datasets(task)],
    output:
        f"{RUN}/summary.json",
    log:
        f"{RUN}/logs/summarise.log",
    conda:
        ENVIRONMENT
    params:
        step=STEP.format(step="summarise"),
        code=source_hash("sgoif.bench.summary"),
        tables=configuration.digest([CONFIG["tables"], CONFIG["not_run"]]),
    shell:
        "{params.step} > {log:q} 2>&1 || {{ tail -n 20 {log:q} >&2; exit 1; }}"


rule tables:
    input:
        f"{RUN}/summary.json",
    output:
        expand(f"{RUN}/tables/{{table}}.{{kind}}", table=CONFIG["tables"], kind=["md", "tex", "json"]),
        report(expand(f"{RUN}/tables/{{table}}.csv", table=CONFIG["tables"]), category="Tables"),
    log:
        f"{RUN}/logs/tables.log",
    conda:
        ENVIRONMENT
    params:
        step=STEP.format(step="tables"),
        code=source_hash("sgoif.bench.tables"),
        tables=configuration.digest(CONFIG["tables"]),
    shell:
        "{params.step} > {log:q} 2>&1 || {{ tail -n 20 {log:q} >&2; exit 1; }}"
