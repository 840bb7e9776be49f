use rule method as ood_draem with:
    input:
        **reads("ood", "draem"),
    output:
        batch_file("ood", "draem"),
    log:
        log_file("ood", "draem"),
    params:
        **job("draem"),
