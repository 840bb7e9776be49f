"""Training that tolerates wrong labels, and what is recorded of every visit of an example.

Way in: `visits.VisitRecorder` keeps margin, loss and error of each example in each epoch, from the logits that the
training step computes anyway, and `visits.Visits` averages them over a window of training. `losses` has the losses,
each a small object with its own state, that `training` and SG-OIF can train with, and `loss_correction` one that knows
how labels are corrupted. `peer_networks` trains two networks on each other's selection.
Reads and writes no files.
"""
