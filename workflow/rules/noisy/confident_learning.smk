use rule method as noisy_confident_learning with:
    input:
        **reads("noisy", "confident_learning"),
    output:
        batch_file("noisy", "confident_learning"),
    log:
        log_file("noisy", "confident_learning"),
    params:
        **job("confident_learning"),
