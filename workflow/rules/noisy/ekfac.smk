use rule method as noisy_ekfac with:
    input:
        **reads("noisy", "ekfac"),
    output:
        batch_file("noisy", "ekfac"),
    log:
        log_file("noisy", "ekfac"),
    params:
        **job("ekfac"),
