use rule method as noisy_sce with:
    input:
        **reads("noisy", "sce"),
    output:
        batch_file("noisy", "sce"),
    log:
        log_file("noisy", "sce"),
    params:
        **job("sce"),
