use rule method as noisy_loss with:
    input:
        **reads("noisy", "loss"),
    output:
        batch_file("noisy", "loss"),
    log:
        log_file("noisy", "loss"),
    params:
        **job("loss"),
