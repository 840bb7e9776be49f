use rule method as noisy_forgetting with:
    input:
        **reads("noisy", "forgetting"),
    output:
        batch_file("noisy", "forgetting"),
    log:
        log_file("noisy", "forgetting"),
    params:
        **job("forgetting"),
