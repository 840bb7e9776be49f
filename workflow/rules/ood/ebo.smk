use rule method as ood_ebo with:
    input:
        **reads("ood", "ebo", "val", "plain"),
    output:
        batch_file("ood", "ebo"),
    log:
        log_file("ood", "ebo"),
    params:
        **job("ebo"),
