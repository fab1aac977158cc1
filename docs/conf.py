"""Sphinx settings. The notebooks are executed by the build, so that what they show is what this version does."""

import os

import latflow

os.environ.setdefault("OMP_NUM_THREADS", "1")  # models this small gain nothing from a second thread

project = "latflow"
author = "the latflow developers"
release = version = latflow.__version__
extensions = ["myst_nb"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds for a cell: a slow machine is no error, a hanging cell is
nb_merge_streams = True
html_theme = "furo"
html_title = f"latflow {release}"
exclude_patterns = ["_build"]
