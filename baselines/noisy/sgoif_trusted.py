"""SG-OIF with trusted anchors: the same method, given a few images with clean labels.

The anchors are the trusted images instead of the training stream, passed through the network in turns, some at every
check, and what the network predicts for them tells what the labels mean (`sgoif.label_noise.evidence`). That matters
where most labels of a class are wrong in one and the same way: the labels alone then say nothing about which is meant.

Reference: as for SG-OIF; an influence on validation loss is what the paper's equations define. Cost: one training run,
and a forward pass of some trusted images per check.

Paper: SG-OIF, the paper of this repository.
Code: `sgoif`, this repository's library.
Deviations: what differs from the paper is in docs/method.md.
"""

from __future__ import annotations

from sgoif.bench.methods.sgoif_detector import TrustedDetector


class TrustedSGOIF(TrustedDetector):
    name = "sgoif_trusted"
    title = "SG-OIF, trusted †"
    group = "Given all clean labels that were set aside"
    order = 3
    ranked = False
