"""`python -m sgoif.bench`: the command line of the benchmark."""

import sys

from sgoif.bench.execution.launch.client import hand_over

status = hand_over(sys.argv[1:])
if status is None:
    from sgoif.bench.cli import main

    status = main()
raise SystemExit(status)
