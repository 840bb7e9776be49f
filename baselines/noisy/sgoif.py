"""SG-OIF, our own method, under the same contract as every baseline.

One ordinary training run, watched: the score of an example is its online influence on class-balanced anchors,

    s_i = sum over visits in the window of  -<phibar_t, g_i(theta_t)>,   phibar = sum_v w_v t_v phi_v,  phi_v ~ H^-1 g_v

What is ranked is its `suspicion`: the log-odds of a class model of predictions and class influences, and, as far as
wrong labels are scattered, that influence and the margins (`sgoif.label_noise.evidence`). Influence and log-odds alone
are the variants `influence` and `latent`. The variant `sgoif@paper` is the paper's algorithm and score alone: anchors
count alike, and the influence ranks. No clean label is used. The hyper-parameters are the fields of
`sgoif.InfluenceConfig`. Before retraining as many examples are removed as are expected to be wrong, the most
suspicious ones (`InfluenceResult.find_label_issues`).

Paper: SG-OIF, the paper of this repository.
Code: `sgoif`, this repository's library.
Deviations: what differs from the paper is in docs/method.md.
"""

from __future__ import annotations

from sgoif.bench.methods.sgoif_detector import SGOIFDetector


class SGOIF(SGOIFDetector):
    name = "sgoif"
    title = "SG-OIF"
    group = "Methods of the paper"
    order = 9
