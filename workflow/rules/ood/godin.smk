use rule method as ood_godin with:
    input:
        **reads("ood", "godin"),
    output:
        batch_file("ood", "godin"),
    log:
        log_file("ood", "godin"),
    params:
        **job("godin"),
