use rule method as ood_scale with:
    input:
        **reads("ood", "scale"),
    output:
        batch_file("ood", "scale"),
    log:
        log_file("ood", "scale"),
    params:
        **job("scale"),
