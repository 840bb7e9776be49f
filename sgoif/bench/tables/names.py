"""Names of the methods as printed, and the groups and the order in which they stand in tables."""

# shown and not ranked: methods of the table with more to go by
APART = ("mentornet@data_driven", "fastif@all_trusted", "sgoif_trusted")
NOISY_GROUPS = {  # the paper's order
    "Methods of the paper": ("incv", "mixup", "sce", "mentornet", "coteaching", "fastif", "tracin",
                             "confident_learning", "sgoif"),
    "Given all clean labels that were set aside": APART,
    "Free detectors": ("random", "loss", "margin", "aum", "oof_self_confidence"),
}  # fmt: skip
OOD_GROUPS = {  # the paper's five groups; two of its names are wrong for most of their methods
    "Anomaly detection": ("cutpaste", "draem", "patchcore", "gram"),
    "Energy and gradient": ("ebo", "gradnorm", "react", "mls", "klm", "dice"),
    "Features": ("vim", "knn"),
    "Generative (so called)": ("godin", "csi", "arpl", "mos", "opengan", "vos"),
    "Augmentation (so called)": ("logitnorm", "udg", "pixmix"),
    "Ours": ("sgoif",),
    "Free baseline": ("msp",),
}
OTHERS, REFERENCE = "Others", "Reference"
TITLES = {
    "incv": "INCV", "mixup": "Mixup", "sce": "SCE-loss", "mentornet": "MentorNet", "coteaching": "Co-Teaching",
    "fastif": "FastIF †", "tracin": "TracIn", "confident_learning": "CL", "sgoif": "SG-OIF",
    "sgoif_trusted": "SG-OIF, trusted †", "fastif@all_trusted": "FastIF, all trusted †",
    "mentornet@data_driven": "MentorNet, data-driven †",
    "random": "random", "loss": "last-epoch loss", "margin": "last-epoch margin", "aum": "mean margin (AUM)",
    "oof_self_confidence": "out-of-fold self-confidence", "plain": "plain training",
    "cutpaste": "CutPaste", "draem": "DRAEM", "patchcore": "PatchCore", "gram": "Gram", "ebo": "EBO",
    "gradnorm": "GradNorm", "react": "ReAct", "mls": "MLS", "klm": "KLM", "dice": "DICE", "vim": "ViM", "knn": "KNN",
    "godin": "G-ODIN", "csi": "CSI", "arpl": "ARPL", "mos": "MOS", "opengan": "OpenGAN", "vos": "VOS",
    "logitnorm": "LogitNorm", "udg": "UDG", "pixmix": "PixMix", "msp": "MSP",
}  # fmt: skip
