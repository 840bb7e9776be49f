use rule method as noisy_mentornet with:
    input:
        **reads("noisy", "mentornet"),
    output:
        batch_file("noisy", "mentornet"),
    log:
        log_file("noisy", "mentornet"),
    params:
        **job("mentornet"),
