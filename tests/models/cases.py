"""Small models of every kind: the latent rows of the paper's Tables 1 and 2, rows with a codebook, the baseline."""

from dataclasses import replace

import torch

from latflow.axes import choose
from latflow.config import LSTMConfig, ModelConfig, PriorConfig, evolve
from latflow.data.base import Batch, DataSpec
from latflow.models import SequenceModel, build

_CODEBOOK = {
    "latent_size": None,
    "posterior": "codebook",
    "emission": "bayes",
    "prior.reading": "symbols",
    "prior.scalar": "mixture",
}
PRIORS = {
    "af-af": {},
    "af-scf": {"prior.hidden": "scf"},
    "iaf-scf": {"prior.time": "iaf", "prior.hidden": "scf"},
    "af-only": {"prior.time": "none", "prior.context": "position"},
    "af-af-affine": {"prior.scalar": "affine"},
    "af-none-nlsq": {"prior.hidden": "none"},
    "af-none-affine": {"prior.hidden": "none", "prior.scalar": "affine"},
    "af-af-codebook": {**_CODEBOOK, "prior.hidden": "codebook"},
    "af-af-mixture-codebook": {**_CODEBOOK, "prior.hidden.layers": 1, "prior.hidden.skip": True},
    "af-scf-codebook": {**_CODEBOOK, "prior.hidden": "scf"},
    "iaf-af-codebook": {**_CODEBOOK, "prior.time": "iaf", "prior.reading": "layer"},
    "af-af-nlsq-codebook": {**_CODEBOOK, "prior.scalar": "nlsq"},
    "af-only-codebook": {
        **_CODEBOOK,
        "prior.time": "none",
        "prior.context": "position",
        "prior.reading": "raw",
    },
}
"""Changes of AF / AF: the paper's rows, and rows with a codebook."""
MODELS = [*PRIORS, "lstm"]
OF_MUSIC = [name for name in MODELS if not name.endswith("codebook") or name == "af-af-codebook"]
"""Those that are tried on notes too."""


def config(
    name: str, units: int = 8, latent_size: int = 3, layers: int = 1, flow_layers: int = 2
) -> ModelConfig:
    sizes = {"layers": layers, "units": units}
    hidden = {"name": "af", "layers": flow_layers, "units": 8}
    base = ModelConfig(
        latent_size=latent_size,
        embedding_size=units,
        posterior=choose("posterior", "bilstm", **sizes),
        emission=choose("emission", "bilstm", **sizes),
        baseline=LSTMConfig(layers, units, 0.0),
        prior=PriorConfig(hidden=hidden, context={"name": "lstm", **sizes, "dropout": 0.0}),  # type: ignore[arg-type]
    )
    if name == "lstm":
        return replace(base, kind="lstm")
    return evolve(base, PRIORS[name])


TIED_NOTES = {
    "prior.hidden": "af",
    "prior.hidden.layers": 1,
    "prior.hidden.units": 88,
    "prior.scalar": "mixture",
    "prior.scalar.tied": True,
}


def text_spec(symbols: str = "abc", longest: int = 6) -> DataSpec:
    return DataSpec("text", tuple(symbols), (0,) + (1,) * longest)


def music_spec(longest: int = 6) -> DataSpec:
    return DataSpec("music", (), (0,) + (1,) * longest)


def small_model(name: str, spec: DataSpec, spread: float = 0.0, **sizes: int) -> SequenceModel:
    changes = {}
    if spec.kind == "music" and name.endswith(
        "codebook"
    ):  # a number a note; the tied mixture is a scalar map
        changes = {"prior.hidden.units": 88} if name != "af-af-codebook" else TIED_NOTES
    model = build(evolve(config(name, **sizes), changes), spec)
    if spread:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=spread)
    return model


def batch_of(x: torch.Tensor, lengths: list[int]) -> Batch:
    n = len(lengths)
    return Batch(x, torch.tensor(lengths), torch.arange(n), torch.ones(n))


def strings(spec: DataSpec, texts: list[str]) -> Batch:
    x = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.int64)
    for i, text in enumerate(texts):
        x[i, : len(text)] = torch.from_numpy(spec.encode(text))
    return batch_of(x, [len(text) for text in texts])


TINY = ModelConfig(
    latent_size=3,
    embedding_size=6,
    prior=PriorConfig(
        hidden=choose("hidden", "af", layers=2, units=8), context=choose("context", "lstm", units=6)
    ),
    posterior=choose("posterior", "bilstm", layers=1, units=6),
    emission=choose("emission", "bilstm", layers=1, units=6),
    baseline=LSTMConfig(2, 6, 0.0),
)
"""A model of every part, as small as it goes."""
