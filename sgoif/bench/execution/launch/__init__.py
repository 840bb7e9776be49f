"""Starts Snakemake and the jobs of a run quickly, ends them with it, and tells a person how far it is.

Ways in: `run_snakemake.run()`; in it `server.job_server()` around Snakemake and `progress.follow()` over its output;
`client.hand_over()`, `lifeline` and `gpu_slots` at the start of a step. Reads and writes no results; the server's
errors are in `.snakemake/job-server.log`.
"""
