use rule method as ood_logitnorm with:
    input:
        **reads("ood", "logitnorm"),
    output:
        batch_file("ood", "logitnorm"),
    log:
        log_file("ood", "logitnorm"),
    params:
        **job("logitnorm"),
