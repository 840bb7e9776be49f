# Fidelity: attributions beside retraining. A job computes one seed of a measurement, as far as its cells are not there.

from sgoif.bench.fidelity import fingerprint as fidelity_fingerprint

FIDELITY = CONFIG.get("fidelity", {})
FIDELITY_TABLES = (
    [f"{RUN}/tables/fidelity.{kind}" for kind in ("md", "tex", "csv", "json")]
    if FIDELITY
    else []
)
FIDELITY_CELLS = [
    f"{RUN}/fidelity/{name}/seed{seed}/cells.json"
    for name, spec in FIDELITY.items()
    for seed in spec["seeds"]
]


rule fidelity:
    input:
        lambda w: meta(FIDELITY[w.name]["dataset"]),
    output:
        f"{RUN}/fidelity/{{name,[a-z0-9_]+}}/seed{{seed,[0-9]+}}/cells.json",
    log:
        f"{RUN}/logs/fidelity/{{name}}-{{seed}}.log",
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        gpu=int(ON_GPU),
        runtime=60,
    params:
        step=STEP.format(step="fidelity"),
        fingerprint=lambda w: fidelity_fingerprint(FIDELITY[w.name]),
    shell:
        "{params.step} --name {wildcards.name:q} --seed {wildcards.seed:q} --threads {threads} > {log:q} 2>&1"
        " || {{ tail -n 20 {log:q} >&2; exit 1; }}"


if FIDELITY:

    rule fidelity_table:
        input:
            FIDELITY_CELLS,
        output:
            FIDELITY_TABLES,
        log:
            f"{RUN}/logs/fidelity_table.log",
        conda:
            ENVIRONMENT
        params:
            step=STEP.format(step="fidelity-table"),
            code=source_hash("sgoif.bench.fidelity.table"),
            rows=digest(FIDELITY),
        shell:
            "{params.step} > {log:q} 2>&1 || {{ tail -n 20 {log:q} >&2; exit 1; }}"
