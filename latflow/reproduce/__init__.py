"""The paper's tables, each by one command, our numbers beside the paper's.

tables.py    what rows a table has: the presets that are ours, the figures that are quoted
result.py    the file of one finished and evaluated run
render.py    a table with its results as text, Markdown, LaTeX and JSON
page.py      docs/results.md, from the result files alone
work.py      train or pick up, evaluate once, write: the only part that needs torch
"""
