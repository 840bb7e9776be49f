"""Random mutants of the library, the metrics, the noise and the baselines, and the tests nearest to each.

`python -m tests.mutants` (or `make mutants`) draws them, runs each in a copy of the project and writes what became of
it. `sites` finds what can be changed in a file, `edits` how, `draw` chooses, `nearest` knows which tests to run,
`workers` runs them, `survivors` knows why some do not matter, `report` writes the page. Nothing is written into the
checkout but the report.
"""
