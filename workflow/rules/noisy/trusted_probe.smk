use rule method as noisy_trusted_probe with:
    input:
        **reads("noisy", "trusted_probe"),
    output:
        batch_file("noisy", "trusted_probe"),
    log:
        log_file("noisy", "trusted_probe"),
    params:
        **job("trusted_probe"),
