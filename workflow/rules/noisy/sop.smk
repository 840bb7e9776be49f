use rule method as noisy_sop with:
    input:
        **reads("noisy", "sop"),
    output:
        batch_file("noisy", "sop"),
    log:
        log_file("noisy", "sop"),
    params:
        **job("sop"),
