# The rule that all methods extend. A method's own rule lies in noisy/ or ood/ and is found by listing the folder. What
# it reads follows from the declarations in the method's class; it may set other resources.


use rule plain as method with:
    output:
        f"{RUN}/batches/{{task}}/{{dataset}}/template{{variant}}/{{batch}}.json",
    log:
        f"{RUN}/logs/{{task}}/{{dataset}}/template{{variant}}-{{batch}}.log",


for rule_file in sorted(Path(workflow.basedir, "workflow", "rules").glob("*/*.smk")):

    include: str(rule_file)
