"""SG-OIF, our own method, under the same contract as every baseline.

One ordinary training run, watched: the score of an example is its online influence on class-balanced anchors,

    s_i = sum over visits in the window of  -<phibar_t, g_i(theta_t)>,   phibar = sum_v w_v t_v phi_v,  phi_v ~ H^-1 g_v

What is ranked is its `suspicion`: that influence beside what the latent classes of the network's predictions say
(`sgoif.label_noise.latent_classes`); each alone is a variant, `influence` and `latent`. No clean label is used. The
hyper-parameters are the fields of `sgoif.InfluenceConfig`. Before retraining as many examples are removed as are
expected to be wrong (`InfluenceResult.find_label_issues`): those with the highest prediction score, which is better
than the suspicion at keeping the classes comparable, or the most suspicious ones where the latent classes lack full
weight.

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
