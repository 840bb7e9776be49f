use rule method as noisy_oof_self_confidence with:
    input:
        **reads("noisy", "oof_self_confidence"),
    output:
        batch_file("noisy", "oof_self_confidence"),
    log:
        log_file("noisy", "oof_self_confidence"),
    params:
        **job("oof_self_confidence"),
