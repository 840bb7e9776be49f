"""Methods of the benchmark: what they may see, how they are found, and what several of them share.

Way in: `registry.load(task, name)` imports a method of `baselines/`, `registry.declaration(task, name)` reads its
title, group and needs without importing it. `base` defines the classes that methods derive from, `tasks` what
they may see; `plain_run` and `cross_validation` are the runs that methods share, `ood` and `robust` the code.
Reads: the files in `baselines/`, and the results of shared runs. Writes: checkpoints of the plain run; `template`
writes the two files of a new baseline.
"""
