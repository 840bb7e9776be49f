use rule method as noisy_cartography with:
    input:
        **reads("noisy", "cartography"),
    output:
        batch_file("noisy", "cartography"),
    log:
        log_file("noisy", "cartography"),
    params:
        **job("cartography"),
