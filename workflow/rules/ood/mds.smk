use rule method as ood_mds with:
    input:
        **reads("ood", "mds"),
    output:
        batch_file("ood", "mds"),
    log:
        log_file("ood", "mds"),
    params:
        **job("mds"),
