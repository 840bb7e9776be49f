use rule method as noisy_trak with:
    input:
        **reads("noisy", "trak"),
    output:
        batch_file("noisy", "trak"),
    log:
        log_file("noisy", "trak"),
    params:
        **job("trak"),
