use rule method as noisy_gce with:
    input:
        **reads("noisy", "gce"),
    output:
        batch_file("noisy", "gce"),
    log:
        log_file("noisy", "gce"),
    params:
        **job("gce"),
