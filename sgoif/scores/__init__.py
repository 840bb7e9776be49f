"""What is kept of every visit of every training example while training runs.

`VisitStatistics` adds up scores, predictions and margins per example. `StreamingTemperature` tracks the softmax
temperature of the gradients, and `half_width` gives the confidence interval of a score. The engine calls all three;
`InfluenceResult` is read from the first. The package reads and writes no files.
"""
