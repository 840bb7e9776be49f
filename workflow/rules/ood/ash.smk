use rule method as ood_ash with:
    input:
        **reads("ood", "ash"),
    output:
        batch_file("ood", "ash"),
    log:
        log_file("ood", "ash"),
    params:
        **job("ash"),
