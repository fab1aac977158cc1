"""A page to see, hear and steer models in a browser: `latflow page`.

guard.py     who may ask, and how much: Host, Origin, sizes, headers
inputs.py    what was asked, read strictly
jobs.py      one computation at a time, bounded, that can be cancelled
shelf.py     the models by the names that the page knows them by
text.py music.py runs.py    the answers
app.py       addresses to answers; static/ is the page itself, without a build step
"""
