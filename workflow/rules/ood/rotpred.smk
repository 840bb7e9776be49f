use rule method as ood_rotpred with:
    input:
        **reads("ood", "rotpred"),
    output:
        batch_file("ood", "rotpred"),
    log:
        log_file("ood", "rotpred"),
    params:
        **job("rotpred"),
