use rule method as ood_mos with:
    input:
        **reads("ood", "mos"),
    output:
        batch_file("ood", "mos"),
    log:
        log_file("ood", "mos"),
    params:
        **job("mos"),
