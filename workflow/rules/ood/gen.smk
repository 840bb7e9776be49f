use rule method as ood_gen with:
    input:
        **reads("ood", "gen"),
    output:
        batch_file("ood", "gen"),
    log:
        log_file("ood", "gen"),
    params:
        **job("gen"),
