use rule method as noisy_coteaching with:
    input:
        **reads("noisy", "coteaching"),
    output:
        batch_file("noisy", "coteaching"),
    log:
        log_file("noisy", "coteaching"),
    params:
        **job("coteaching"),
