use rule method as noisy_margin with:
    input:
        **reads("noisy", "margin"),
    output:
        batch_file("noisy", "margin"),
    log:
        log_file("noisy", "margin"),
    params:
        **job("margin"),
