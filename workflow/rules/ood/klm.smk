use rule method as ood_klm with:
    input:
        **reads("ood", "klm"),
    output:
        batch_file("ood", "klm"),
    log:
        log_file("ood", "klm"),
    params:
        **job("klm"),
