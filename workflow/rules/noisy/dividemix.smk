use rule method as noisy_dividemix with:
    input:
        **reads("noisy", "dividemix"),
    output:
        batch_file("noisy", "dividemix"),
    log:
        log_file("noisy", "dividemix"),
    params:
        **job("dividemix"),
