use rule method as noisy_tracin with:
    input:
        **reads("noisy", "tracin"),
    output:
        batch_file("noisy", "tracin"),
    log:
        log_file("noisy", "tracin"),
    params:
        **job("tracin"),
