use rule method as noisy_aum with:
    input:
        **reads("noisy", "aum"),
    output:
        batch_file("noisy", "aum"),
    log:
        log_file("noisy", "aum"),
    params:
        **job("aum"),
