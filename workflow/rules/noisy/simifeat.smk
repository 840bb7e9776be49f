use rule method as noisy_simifeat with:
    input:
        **reads("noisy", "simifeat"),
    output:
        batch_file("noisy", "simifeat"),
    log:
        log_file("noisy", "simifeat"),
    params:
        **job("simifeat"),
