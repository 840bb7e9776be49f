"""`python -m sgoif`: the `sgoif` command."""

from sgoif.cli import main

raise SystemExit(main())
