use rule method as ood_ebo with:
    input:
        **reads("ood", "ebo"),
    output:
        batch_file("ood", "ebo"),
    log:
        log_file("ood", "ebo"),
    params:
        **job("ebo"),
