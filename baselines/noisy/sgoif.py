"""SG-OIF, our own method, under the same contract as every baseline.

One ordinary training run, watched: the score of an example is its online influence on one anchor for each class,
which counts by the share of that class, pi_v,

    s_i = mean over visits in the window of  -<phibar_t, g_i(theta_t)>
    phibar = sum_v pi_v w_v t_v phi_v,   phi_v ~ H^-1 g_v

What is ranked is its `suspicion`: the log-odds of a class model of predictions and class influences, and, as far as
wrong labels are scattered, that influence and the margins (`sgoif.label_noise.evidence`). Each part alone is shown
beside it in tables of scores. No clean label is used. The hyper-parameters are the fields of `sgoif.InfluenceConfig`.
Before retraining as many examples are removed as are expected to be wrong, the most suspicious ones
(`InfluenceResult.find_label_issues`).

The variant `sgoif@paper` is the paper's algorithm and score alone: anchors count alike, and the influence ranks.
`sgoif@gce` and `sgoif@elr` watch a training by another loss. `sgoif@twice` watches two trainings: the second one is by
cross-entropy corrected by the noise matrix that the class model has found in the first, and ranks. These four have rows
of their own in every table that has a row of SG-OIF. `sgoif@kfac_alone` and `sgoif@identity` (H = I) are controls
without solver, gate and trust in anchors.

Paper: SG-OIF, the paper of this repository.
Code: `sgoif`, this repository's library.
Deviations: what differs from the paper is in docs/method.md.
"""

from __future__ import annotations

from typing import ClassVar

from sgoif.bench.methods.sgoif_detector import SGOIFDetector


class SGOIF(SGOIFDetector):
    name = "sgoif"
    title = "SG-OIF"
    group = "Methods of the paper"
    order = 9
    shown_variants: ClassVar = {
        "paper": {
            "title": "SG-OIF (the paper's algorithm and score alone)",
            "group": "Methods of the paper",
            "order": 10,
        },
        "gce": {"title": "SG-OIF watching GCE", "group": "Later robust trainers", "order": 30},
        "elr": {"title": "SG-OIF watching ELR", "group": "Later robust trainers", "order": 31},
        "twice": {"title": "SG-OIF, two trainings", "group": "Later robust trainers", "order": 32},
    }
