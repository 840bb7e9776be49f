use rule method as noisy_inrun_shapley with:
    input:
        **reads("noisy", "inrun_shapley"),
    output:
        batch_file("noisy", "inrun_shapley"),
    log:
        log_file("noisy", "inrun_shapley"),
    params:
        **job("inrun_shapley"),
