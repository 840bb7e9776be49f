use rule method as ood_she with:
    input:
        **reads("ood", "she"),
    output:
        batch_file("ood", "she"),
    log:
        log_file("ood", "she"),
    params:
        **job("she"),
