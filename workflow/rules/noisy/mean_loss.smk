use rule method as noisy_mean_loss with:
    input:
        **reads("noisy", "mean_loss"),
    output:
        batch_file("noisy", "mean_loss"),
    log:
        log_file("noisy", "mean_loss"),
    params:
        **job("mean_loss"),
