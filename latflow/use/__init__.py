"""What people do with a trained model: draw new sequences, also given what is known of them, score their own, write a folder to share."""

from latflow.use.evidence import Evidence
from latflow.use.export import export, save
from latflow.use.given import Given, given
from latflow.use.sample import sample
from latflow.use.score import score

__all__ = ["Evidence", "Given", "export", "given", "sample", "save", "score"]
