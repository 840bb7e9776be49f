use rule method as noisy_glc with:
    input:
        **reads("noisy", "glc"),
    output:
        batch_file("noisy", "glc"),
    log:
        log_file("noisy", "glc"),
    params:
        **job("glc"),
