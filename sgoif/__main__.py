from sgoif.cli import main

raise SystemExit(main())
