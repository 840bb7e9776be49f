use rule method as ood_react with:
    input:
        **reads("ood", "react"),
    output:
        batch_file("ood", "react"),
    log:
        log_file("ood", "react"),
    params:
        **job("react"),
