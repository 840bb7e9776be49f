use rule method as noisy_el2n with:
    input:
        **reads("noisy", "el2n"),
    output:
        batch_file("noisy", "el2n"),
    log:
        log_file("noisy", "el2n"),
    params:
        **job("el2n"),
