use rule method as noisy_sgoif_glc with:
    input:
        **reads("noisy", "sgoif_glc"),
    output:
        batch_file("noisy", "sgoif_glc"),
    log:
        log_file("noisy", "sgoif_glc"),
    params:
        **job("sgoif_glc"),
