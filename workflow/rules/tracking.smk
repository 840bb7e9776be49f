# MLflow: the store is made by one job, and one job imports everything, so that no two processes write to it at once.
# On a cluster both run on the node that submits.


localrules:
    track_init,
    track,


rule track_init:
    output:
        touch(f"{RUN}/mlflow/created"),
    log:
        f"{RUN}/logs/track_init.log",
    conda:
        ENVIRONMENT
    params:
        step=STEP.format(step="track-init"),
    shell:
        "{params.step} > {log:q} 2>&1 || {{ tail -n 20 {log:q} >&2; exit 1; }}"


rule track:
    input:
        f"{RUN}/mlflow/created",
        f"{RUN}/summary.json",
        expand(f"{RUN}/tables/{{table}}.md", table=CONFIG["tables"]),
        FIDELITY_TABLES,
    output:
        f"{RUN}/mlflow/imported.json",
    log:
        f"{RUN}/logs/track.log",
    priority: 1
    conda:
        ENVIRONMENT
    params:
        step=STEP.format(step="track"),
        code=source_hash("sgoif.bench.sharing.mlflow_import"),
    shell:
        "{params.step} > {log:q} 2>&1 || {{ tail -n 20 {log:q} >&2; exit 1; }}"
