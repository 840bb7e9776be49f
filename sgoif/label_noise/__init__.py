"""Finds wrong labels from scores and predictions, without knowing the truth.

`fit_latent_classes` estimates true classes and the noise matrix from predictions. `estimate_label_errors` says how many
labels are wrong, and which. `LabelIssues` is what users get, through `InfluenceResult.find_label_issues`. All work on
tensors in memory; the package reads and writes no files.
"""
