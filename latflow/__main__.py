"""`python -m latflow` is `latflow`."""

import os
import sys

from latflow.cli import main

code = main()
if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    # One of many processes: gloo's threads may still hold tensors of the last reduction, and an interpreter that
    # finalizes under them aborts now and then (pytorch/pytorch#179291). All files are closed; leave without it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
sys.exit(code)
