use rule method as ood_fdbd with:
    input:
        **reads("ood", "fdbd"),
    output:
        batch_file("ood", "fdbd"),
    log:
        log_file("ood", "fdbd"),
    params:
        **job("fdbd"),
