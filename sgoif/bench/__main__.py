"""`python -m sgoif.bench`: the command line of the benchmark."""

from sgoif.bench.cli import main

raise SystemExit(main())
