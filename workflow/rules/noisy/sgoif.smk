use rule method as noisy_sgoif with:
    input:
        **reads("noisy", "sgoif"),
    output:
        batch_file("noisy", "sgoif"),
    log:
        log_file("noisy", "sgoif"),
    params:
        **job("sgoif"),
