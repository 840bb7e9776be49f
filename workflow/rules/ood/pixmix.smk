use rule method as ood_pixmix with:
    input:
        **reads("ood", "pixmix"),
    output:
        batch_file("ood", "pixmix"),
    log:
        log_file("ood", "pixmix"),
    params:
        **job("pixmix"),
