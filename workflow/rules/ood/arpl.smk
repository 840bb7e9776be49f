use rule method as ood_arpl with:
    input:
        **reads("ood", "arpl"),
    output:
        batch_file("ood", "arpl"),
    log:
        log_file("ood", "arpl"),
    params:
        **job("arpl"),
