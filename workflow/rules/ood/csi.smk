use rule method as ood_csi with:
    input:
        **reads("ood", "csi"),
    output:
        batch_file("ood", "csi"),
    log:
        log_file("ood", "csi"),
    params:
        **job("csi"),
