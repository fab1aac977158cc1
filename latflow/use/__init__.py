"""What people do with a trained model: draw new sequences, also given some of them, score their own, share a folder."""

from latflow.use.evidence import Evidence
from latflow.use.export import export, save
from latflow.use.given import Given, given
from latflow.use.sample import sample
from latflow.use.score import score

__all__ = ["Evidence", "Given", "export", "given", "sample", "save", "score"]
