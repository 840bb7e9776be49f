use rule method as noisy_elr with:
    input:
        **reads("noisy", "elr"),
    output:
        batch_file("noisy", "elr"),
    log:
        log_file("noisy", "elr"),
    params:
        **job("elr"),
