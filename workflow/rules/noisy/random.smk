use rule method as noisy_random with:
    input:
        **reads("noisy", "random"),
    output:
        batch_file("noisy", "random"),
    log:
        log_file("noisy", "random"),
    params:
        **job("random"),
