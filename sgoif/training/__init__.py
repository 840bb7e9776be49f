"""Trains image classifiers: resumable, timed, deterministic, on one device or several processes.

Way in: `Session` (state of one computation) with `Learner` (network and optimiser) and `Batches` (minibatches of an
`ImageSet` or a `StreamedSet`), all set up by a `Recipe`; then `predict`. Used by `sgoif.bench` and `sgoif.scan`.

Reads: images in memory, or image files (`streaming`).
Writes: checkpoints, cached arrays and times in the session's folder (`<phase>.pt`, `<name>.npz`, `times.npz`, `key`).
"""
