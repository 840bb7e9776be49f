# Runs that methods read instead of training again: the plain run and the cross-validation folds.


rule plain:
    input:
        images=lambda w: [meta(w.dataset), *starts(w)],
        labels=labels,
        val=needs_val,
    output:
        f"{RUN}/batches/{{task}}/{{dataset}}/plain{{variant}}/{{batch}}.json",
    log:
        f"{RUN}/logs/{{task}}/{{dataset}}/plain{{variant}}-{{batch}}.log",
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        gpu=gpus,
        nodes=nodes,
        runtime=minutes,
    params:
        **job("plain"),
    shell:
        "{params.step} --task {wildcards.task} --dataset {wildcards.dataset:q} --method {params.method:q}"
        " --batch {wildcards.batch} --threads {threads} > {log:q} 2>&1 || {{ tail -n 20 {log:q} >&2; exit 1; }}"


use rule plain as folds with:
    output:
        f"{RUN}/batches/{{task}}/{{dataset}}/folds{{variant}}/{{batch}}.json",
    log:
        f"{RUN}/logs/{{task}}/{{dataset}}/folds{{variant}}-{{batch}}.log",
    params:
        **job("folds"),
