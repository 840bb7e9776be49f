"""Estimates what a configuration would cost: jobs, GPU hours and storage (`make plan`).

Way in: `estimate.plan_report(path)`. Reads the configuration, `results/published/costs.json` and the summaries of
published runs (`measured_costs`); writes nothing.
"""
