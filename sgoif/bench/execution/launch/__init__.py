"""Starts the jobs of a run quickly, and tells a person how far it is.

Ways in: `server.job_server()` around Snakemake, `client.hand_over()` at the start of a step, `progress.follow()` over
Snakemake's output. Reads and writes no results; the server's errors are in `.snakemake/job-server.log`.
"""
