use rule method as ood_udg with:
    input:
        **reads("ood", "udg"),
    output:
        batch_file("ood", "udg"),
    log:
        log_file("ood", "udg"),
    params:
        **job("udg"),
