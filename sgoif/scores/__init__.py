"""What is kept of every visit of every training example while training runs.

`VisitStatistics` adds up scores per example, `PredictionStatistics` predictions, class influences and margins.
`StreamingTemperature` tracks the softmax temperature of the gradients, and `visit_half_width` gives the interval of a
score. The engine calls them; `InfluenceResult` is read from the first two. The package reads and writes no files.
"""
