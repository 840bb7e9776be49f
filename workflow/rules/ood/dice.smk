use rule method as ood_dice with:
    input:
        **reads("ood", "dice"),
    output:
        batch_file("ood", "dice"),
    log:
        log_file("ood", "dice"),
    params:
        **job("dice"),
