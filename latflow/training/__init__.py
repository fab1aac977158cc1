"""Training and what it needs: the loop, a run's folder, seeds, evaluation, many processes, what is shown meanwhile."""

from latflow.training.fit import resume, train
from latflow.training.run import Run, load

__all__ = ["Run", "load", "resume", "train"]
