use rule method as ood_sgoif with:
    input:
        **reads("ood", "sgoif", "val", "plain"),
    output:
        batch_file("ood", "sgoif"),
    log:
        log_file("ood", "sgoif"),
    params:
        **job("sgoif"),
