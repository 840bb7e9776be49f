use rule method as ood_vos with:
    input:
        **reads("ood", "vos"),
    output:
        batch_file("ood", "vos"),
    log:
        log_file("ood", "vos"),
    params:
        **job("vos"),
