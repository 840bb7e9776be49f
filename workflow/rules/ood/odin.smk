use rule method as ood_odin with:
    input:
        **reads("ood", "odin"),
    output:
        batch_file("ood", "odin"),
    log:
        log_file("ood", "odin"),
    params:
        **job("odin"),
