use rule method as ood_cutpaste with:
    input:
        **reads("ood", "cutpaste"),
    output:
        batch_file("ood", "cutpaste"),
    log:
        log_file("ood", "cutpaste"),
    params:
        **job("cutpaste"),
