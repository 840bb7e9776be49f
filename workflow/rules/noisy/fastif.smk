use rule method as noisy_fastif with:
    input:
        **reads("noisy", "fastif"),
    output:
        batch_file("noisy", "fastif"),
    log:
        log_file("noisy", "fastif"),
    params:
        **job("fastif"),
