use rule method as noisy_mixup with:
    input:
        **reads("noisy", "mixup"),
    output:
        batch_file("noisy", "mixup"),
    log:
        log_file("noisy", "mixup"),
    params:
        **job("mixup"),
