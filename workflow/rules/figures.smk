# Figures, drawn from the summary.

GRIDS = [
    name for name, table in CONFIG["tables"].items() if table["kind"] == "noise_grid"
]
FIGURES = expand(
    f"{RUN}/figures/{{table}}_detection.{{kind}}", table=GRIDS, kind=["png", "svg"]
)


rule figures:
    input:
        f"{RUN}/summary.json",
    output:
        report(FIGURES, category="Figures"),
    log:
        f"{RUN}/logs/figures.log",
    conda:
        ENVIRONMENT
    params:
        step=STEP.format(step="figures"),
        code=source_hash("sgoif.bench.figures"),
    shell:
        "{params.step} > {log:q} 2>&1 || {{ tail -n 20 {log:q} >&2; exit 1; }}"
