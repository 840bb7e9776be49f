use rule method as ood_opengan with:
    input:
        **reads("ood", "opengan"),
    output:
        batch_file("ood", "opengan"),
    log:
        log_file("ood", "opengan"),
    params:
        **job("opengan"),
