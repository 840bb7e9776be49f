# Datasets, the labels methods may see, and the truth they may not.


rule prepare:
    output:
        f"{DATA}/{{dataset}}/meta.json",
    log:
        f"{DATA}/logs/{{dataset}}.log",
    conda:
        ENVIRONMENT
    params:
        source=prepare_options,
    shell:
        "python -m sgoif.bench prepare {params.source} --dataset {wildcards.dataset:q} > {log:q} 2>&1"
        " || {{ cat {log:q} >&2; exit 1; }}"


rule corrupt:
    input:
        truth_sources,
    output:
        labels=f"{RUN}/labels/{{dataset}}/{{setting}}{{draw}}.npz",
        truth=f"{RUN}/truth/{{dataset}}/{{setting}}{{draw}}.npz",
    log:
        f"{RUN}/logs/corrupt/{{dataset}}-{{setting}}{{draw}}.log",
    conda:
        ENVIRONMENT
    params:
        step=STEP.format(step="corrupt"),
        noise=lambda w: digest(PLAN.noise(w.dataset, w.setting, draw_number(w))),
        draw=draw_number,
        code=source_hash("sgoif.bench.data.noisy_labels"),
    shell:
        "{params.step} --dataset {wildcards.dataset:q} --setting {wildcards.setting:q} --draw {params.draw:q} > {log:q} 2>&1"
        " || {{ cat {log:q} >&2; exit 1; }}"


rule hold_out:
    input:
        lambda w: meta(w.dataset),
    output:
        f"{RUN}/labels/{{dataset}}/val.npz",
    log:
        f"{RUN}/logs/hold_out/{{dataset}}.log",
    conda:
        ENVIRONMENT
    params:
        step=STEP.format(step="hold-out"),
        size=lambda w: PLAN.held_out(w.dataset),
    shell:
        "{params.step} --dataset {wildcards.dataset:q} > {log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"
