"""`python -m latflow` is `latflow`."""

import sys

from latflow.cli import main

sys.exit(main())
