"""Sphinx settings. The notebooks are executed by the build, so that what they show is what this version does."""

import os
from pathlib import Path
from typing import Any

import nbformat

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


def setup(app: Any) -> None:
    """Let the notebooks for download say everything once."""
    app.connect("env-updated", _streams_once)


def _streams_once(app: Any, env: Any) -> None:
    """nb_merge_streams puts all lines of a cell into its first output and leaves the others where they were."""
    for path in Path(app.outdir).parent.glob("jupyter_execute/**/*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            seen: set[str] = set()
            kept = []
            for output in cell.get("outputs", []):
                if output.output_type != "stream" or output.name not in seen:
                    kept.append(output)
                seen.add(output.get("name", ""))
            if "outputs" in cell:
                cell.outputs = kept
        nbformat.write(notebook, path)
