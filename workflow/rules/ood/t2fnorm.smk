use rule method as ood_t2fnorm with:
    input:
        **reads("ood", "t2fnorm"),
    output:
        batch_file("ood", "t2fnorm"),
    log:
        log_file("ood", "t2fnorm"),
    params:
        **job("t2fnorm"),
