use rule method as ood_knn with:
    input:
        **reads("ood", "knn"),
    output:
        batch_file("ood", "knn"),
    log:
        log_file("ood", "knn"),
    params:
        **job("knn"),
