"""Finds wrong labels from scores and predictions, without knowing the truth.

`read_labels` fits a class model to what training has recorded (`fit_class_mixture`) and weighs the signals; trusted
examples tell it what the labels mean. `fit_held_out_classes` needs features, and asks heads that have not seen an
example about its label. `estimate_label_errors` says how many labels are wrong, and which. `LabelIssues` is what users
get, through `InfluenceResult.find_label_issues`. All work on tensors in memory; the package reads and writes no files.
"""
