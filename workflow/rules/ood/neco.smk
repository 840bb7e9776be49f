use rule method as ood_neco with:
    input:
        **reads("ood", "neco"),
    output:
        batch_file("ood", "neco"),
    log:
        log_file("ood", "neco"),
    params:
        **job("neco"),
