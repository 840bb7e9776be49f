use rule method as ood_sgoif with:
    input:
        **reads("ood", "sgoif"),
    output:
        batch_file("ood", "sgoif"),
    log:
        log_file("ood", "sgoif"),
    params:
        **job("sgoif"),
