"""SG-OIF with trusted anchors, watching GLC instead of a plain training.

GLC (`glc`) trains a second network by a loss that is corrected for how labels are corrupted, as the trusted images tell
it, and on these images too. SG-OIF watches that training, whose network should learn fewer wrong labels by heart.

The trusted images are both anchors and examples of the training; only the given labels are ranked.
Cost: a training beyond the plain run, as for GLC, and a forward pass of some trusted images per check.

Paper: SG-OIF, the paper of this repository, and GLC (arXiv:1802.05300).
Code: `sgoif`, this repository's library.
Deviations: as for SG-OIF and GLC.
"""

from __future__ import annotations

from sgoif.bench.methods.robust.loss_correction import gold_training
from sgoif.bench.methods.robust.training import PreparedTraining
from sgoif.bench.methods.sgoif_detector import TrustedDetector
from sgoif.bench.methods.tasks import NoisyTask


class WatchedGLC(TrustedDetector):
    name = "sgoif_glc"
    title = "SG-OIF watching GLC †"
    group = "Given all clean labels that were set aside"
    order = 7
    ranked = False
    distributes = False  # the trusted images join the batches
    reads_plain = True

    def training(self, task: NoisyTask) -> PreparedTraining:
        return gold_training(task, self.name)
