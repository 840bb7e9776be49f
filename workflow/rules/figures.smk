# Figures: a rule for each module of sgoif/bench/figures, drawn from the summary, the metrics and the curves.

from sgoif.bench import figures

PLANNED = figures.planned(CONFIG)
FIGURES = [f"{RUN}/figures/{name}" for one in PLANNED for name in one.files]

for module in figures.modules():
    KIND = module.__name__.split(".")[-1]
    DRAWN = [one for one in PLANNED if one.kind == KIND]
    if not DRAWN:
        continue

    rule:
        name:
            f"figure_{KIND}"
        input:
            f"{RUN}/summary.json",
            [f"{RUN}/metrics/noisy/{d}.json" for d in PLAN.datasets("noisy")],
            [f"{RUN}/curves/noisy/{d}.json" for d in PLAN.datasets("noisy")],
            FIDELITY_CELLS,
        output:
            [
                report(
                    f"{RUN}/figures/{one.name}.svg",
                    caption="../report/figure.rst",
                    category="Figures",
                    labels={"figure": module.TITLE, "of": one.about(CONFIG)},
                )
                for one in DRAWN
            ],
            [f"{RUN}/figures/{one.name}.png" for one in DRAWN],
        log:
            f"{RUN}/logs/figures/{KIND}.log",
        conda:
            ENVIRONMENT
        params:
            step=STEP.format(step="figures"),
            kind=KIND,
            caption=module.CAPTION,
            code=source_hash("sgoif.bench.figures", module.__name__),
        shell:
            "{params.step} --kind {params.kind} > {log:q} 2>&1 || {{ tail -n 20 {log:q} >&2; exit 1; }}"
