# The ledger: every number of the paper beside its public sources and what this run measured.

from sgoif.bench.paper.printed import digest as paper_digest


rule ledger:
    input:
        f"{RUN}/summary.json",
    output:
        f"{RUN}/ledger.json",
        report(
            f"{RUN}/ledger.md",
            caption="../report/ledger.rst",
            category="Ledger",
            labels={"page": "every number of the paper"},
        ),
    log:
        f"{RUN}/logs/ledger.log",
    conda:
        ENVIRONMENT
    params:
        step=STEP.format(step="ledger"),
        code=source_hash("sgoif.bench.paper.comparison"),
        paper=paper_digest(),
        variants=digest(CONFIG["variants"]),
    shell:
        "{params.step} > {log:q} 2>&1 || {{ tail -n 20 {log:q} >&2; exit 1; }}"
