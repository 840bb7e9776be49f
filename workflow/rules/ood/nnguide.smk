use rule method as ood_nnguide with:
    input:
        **reads("ood", "nnguide"),
    output:
        batch_file("ood", "nnguide"),
    log:
        log_file("ood", "nnguide"),
    params:
        **job("nnguide"),
