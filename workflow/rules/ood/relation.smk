use rule method as ood_relation with:
    input:
        **reads("ood", "relation"),
    output:
        batch_file("ood", "relation"),
    log:
        log_file("ood", "relation"),
    params:
        **job("relation"),
