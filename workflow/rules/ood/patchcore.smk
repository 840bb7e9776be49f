use rule method as ood_patchcore with:
    input:
        **reads("ood", "patchcore"),
    output:
        batch_file("ood", "patchcore"),
    log:
        log_file("ood", "patchcore"),
    params:
        **job("patchcore"),
