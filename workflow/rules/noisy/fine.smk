use rule method as noisy_fine with:
    input:
        **reads("noisy", "fine"),
    output:
        batch_file("noisy", "fine"),
    log:
        log_file("noisy", "fine"),
    params:
        **job("fine"),
