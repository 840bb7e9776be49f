use rule method as ood_react with:
    input:
        **reads("ood", "react", "val", "plain"),
    output:
        batch_file("ood", "react"),
    log:
        log_file("ood", "react"),
    params:
        **job("react"),
