use rule method as ood_msp with:
    input:
        **reads("ood", "msp"),
    output:
        batch_file("ood", "msp"),
    log:
        log_file("ood", "msp"),
    params:
        **job("msp"),
