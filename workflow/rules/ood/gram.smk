use rule method as ood_gram with:
    input:
        **reads("ood", "gram"),
    output:
        batch_file("ood", "gram"),
    log:
        log_file("ood", "gram"),
    params:
        **job("gram"),
