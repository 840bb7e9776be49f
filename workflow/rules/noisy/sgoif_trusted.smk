use rule method as noisy_sgoif_trusted with:
    input:
        **reads("noisy", "sgoif_trusted"),
    output:
        batch_file("noisy", "sgoif_trusted"),
    log:
        log_file("noisy", "sgoif_trusted"),
    params:
        **job("sgoif_trusted"),
