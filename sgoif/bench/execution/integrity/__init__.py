"""Damage of the files of a run: what is wrong, and what to delete so that it is made again.

Way in: `verify.verify_run` (every file, `make verify`), `quick_check.quick_check` (before `make tables` starts).
Reads all of results/<run> and the prepared data; `verify.repair` and `damage.delete` delete what can be made again.
"""
