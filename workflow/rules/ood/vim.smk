use rule method as ood_vim with:
    input:
        **reads("ood", "vim"),
    output:
        batch_file("ood", "vim"),
    log:
        log_file("ood", "vim"),
    params:
        **job("vim"),
