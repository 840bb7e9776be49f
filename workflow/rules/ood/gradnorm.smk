use rule method as ood_gradnorm with:
    input:
        **reads("ood", "gradnorm"),
    output:
        batch_file("ood", "gradnorm"),
    log:
        log_file("ood", "gradnorm"),
    params:
        **job("gradnorm"),
