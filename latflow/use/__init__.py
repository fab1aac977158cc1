"""What people do with a trained model: draw new sequences, score their own, write a folder to share."""

from latflow.use.export import export, save
from latflow.use.sample import sample
from latflow.use.score import score

__all__ = ["export", "sample", "save", "score"]
