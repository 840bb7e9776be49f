use rule method as ood_rmds with:
    input:
        **reads("ood", "rmds"),
    output:
        batch_file("ood", "rmds"),
    log:
        log_file("ood", "rmds"),
    params:
        **job("rmds"),
