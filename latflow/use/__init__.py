"""What people do with a trained model: draw new sequences, also given some of them, score their own, share a folder."""

from latflow.use.compare import compare
from latflow.use.evidence import Evidence
from latflow.use.export import export, save
from latflow.use.given import Given, given
from latflow.use.sample import sample
from latflow.use.score import score, score_given
from latflow.use.scores import Scores
from latflow.use.vary import between, like

__all__ = [
    "Evidence",
    "Given",
    "Scores",
    "between",
    "compare",
    "export",
    "given",
    "like",
    "sample",
    "save",
    "score",
    "score_given",
]
