use rule method as noisy_cores with:
    input:
        **reads("noisy", "cores"),
    output:
        batch_file("noisy", "cores"),
    log:
        log_file("noisy", "cores"),
    params:
        **job("cores"),
