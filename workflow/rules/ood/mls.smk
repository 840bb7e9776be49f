use rule method as ood_mls with:
    input:
        **reads("ood", "mls"),
    output:
        batch_file("ood", "mls"),
    log:
        log_file("ood", "mls"),
    params:
        **job("mls"),
