use rule method as noisy_incv with:
    input:
        **reads("noisy", "incv"),
    output:
        batch_file("noisy", "incv"),
    log:
        log_file("noisy", "incv"),
    params:
        **job("incv"),
