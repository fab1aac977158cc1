"""Sphinx settings."""

import latflow

project = "latflow"
author = "the latflow developers"
release = version = latflow.__version__
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"latflow {release}"
exclude_patterns = ["_build"]
