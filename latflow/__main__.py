"""`python -m latflow` is `latflow`."""

import os
import sys

from latflow.cli import main

code = main()
if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # torchrun
    from latflow.training.distributed import leave

    leave(code)
sys.exit(code)
