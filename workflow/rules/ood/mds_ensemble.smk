use rule method as ood_mds_ensemble with:
    input:
        **reads("ood", "mds_ensemble"),
    output:
        batch_file("ood", "mds_ensemble"),
    log:
        log_file("ood", "mds_ensemble"),
    params:
        **job("mds_ensemble"),
