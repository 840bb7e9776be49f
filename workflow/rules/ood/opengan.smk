use rule method as ood_opengan with:
    input:
        **reads("ood", "opengan", "val", "plain"),
    output:
        batch_file("ood", "opengan"),
    log:
        log_file("ood", "opengan"),
    params:
        **job("opengan"),
