from sgoif.scan.cli import main

raise SystemExit(main())
