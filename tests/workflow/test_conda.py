"""`--use-conda`, with a stand-in for conda: the wiring, not that the packages solve (no conda was at hand)."""

import os
import subprocess
import sys
from pathlib import Path

from tests.workflow.test_run import MINI, copy_project, environment

STAND_IN = """#!/bin/bash
case "$1 $2" in
  "info --json") echo '{"conda_prefix": "PREFIX", "platform": "linux-64"}' ;;
  "--version "*) echo "conda 24.9.0" ;;
  "config --get") echo '{"get": {"channel_priority": "strict"}, "rc_path": ""}' ;;
  "env create")
    while [ $# -gt 0 ]; do [ "$1" = --prefix ] && prefix=$2; [ "$1" = --file ] && file=$2; shift; done
    grep -q torch== "$file" || exit 3
    mkdir -p "$prefix/bin" && echo "export PATH=PYTHON_BIN:\\$PATH SGOIF_CONDA=1" > "$prefix/bin/activate"
    echo "$file" >> PREFIX/created ;;
esac
"""


def test_the_rules_run_in_the_environment_that_conda_makes(tmp_path):
    prefix = tmp_path / "conda"
    (prefix / "bin").mkdir(parents=True)
    script = STAND_IN.replace("PREFIX", str(prefix)).replace("PYTHON_BIN", str(Path(sys.executable).parent))
    (prefix / "bin" / "conda").write_text(script)
    (prefix / "bin" / "conda").chmod(0o755)
    (prefix / "bin" / "activate").write_text('source "$1/bin/activate"\n')
    folder = copy_project(tmp_path / "project")
    path = f"{prefix / 'bin'}:{os.environ['PATH']}"
    command = [sys.executable, "-m", "snakemake", "results/mini/truth/digits/n20_s0.npz", *MINI]
    done = subprocess.run(
        [*command, "--use-conda"], cwd=folder, env={**environment(), "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert len((prefix / "created").read_text().splitlines()) == 1, "one environment serves every rule"
    again = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
    assert "Nothing to be done" in again.stdout + again.stderr, "switching to plain reruns nothing"
