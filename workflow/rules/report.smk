# One page with everything a run has to say, opening from disk: results/<run>/report.html.

from sgoif.bench.report import template_hash


rule page:
    input:
        f"{RUN}/summary.json",
        [
            f"{RUN}/metrics/{task}/{dataset}.json"
            for task in ("noisy", "ood")
            for dataset in PLAN.datasets(task)
        ],
        [path for path in FIGURES if path.endswith(".svg")],
        f"{RUN}/ledger.json",
        FIDELITY_TABLES,
    output:
        report(
            f"{RUN}/report.html",
            caption="../report/page.rst",
            category="Report",
            labels={"page": "everything on one page"},
        ),
    log:
        f"{RUN}/logs/report.log",
    conda:
        ENVIRONMENT
    params:
        step=STEP.format(step="report"),
        code=source_hash("sgoif.bench.report"),
        look=template_hash(),
        config=digest(CONFIG),
    shell:
        "{params.step} > {log:q} 2>&1 || {{ tail -n 20 {log:q} >&2; exit 1; }}"
