from sgoif.bench.cli import main

raise SystemExit(main())
