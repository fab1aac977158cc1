"""One tree of frozen dataclasses for a run. Standard library only, so that reading a config is instant."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from latflow.errors import LatflowError


@dataclass(frozen=True)
class DataConfig:
    """Which sequences, and how they are cut and varied."""

    name: str = "hmm"
    """A corpus (`latflow data list`), or a user's own: text:PATH, midi:DIR, tokens:FILE."""
    data_dir: str | None = None
    """Where the corpora lie; otherwise $LATFLOW_DATA, then the cache folder, then a download."""
    max_length: int | None = None
    """Leave out longer sequences; unset: 288 for ptb, and an error beyond 20000 in a user's own lines of text or
    tokens. Not for hmm and chords, which draw their own lengths."""
    chunk: int = 0
    """text: cut every N characters, line ends included; 0: one sequence per line. text8, enwik8: every N
    bytes; 0: 256."""
    valid_fraction: float = 0.1
    """Share of a user's own sequences held out for validation, unless files are named train, valid, test."""
    test_fraction: float = 0.1
    """Share of a user's own sequences held out for the test."""
    split_seed: int = 0
    """Draws that split."""
    smooth_lengths: bool | None = None
    """Add one to p(T) at every length up to int(1.25 x longest); unset: for music and a user's own data."""
    labels: str | None = None
    """A label for each sequence, which the model is told: folder (a user's own files: the folder they lie in),
    field:NAME (tokens: lines are {"tokens": [...], "NAME": "x"}) or key (music: its estimated key); unset: none."""
    unknown: bool | None = None
    """A symbol for all that training never saw; unset: for a user's own text and tokens, the only data that may have
    it."""
    steps_per_beat: int = 4
    """midi: time steps in a quarter note, whatever the tempo."""
    steps_per_second: float | None = None
    """midi: a grid in seconds instead of beats; tempo changes then count."""
    articulate: bool = False
    """midi: a silent step before a note that is struck again, which otherwise becomes one held note."""
    transpose: int = 0
    """music, training only: shift each piece at random by up to this many semitones, and tell the model by how many."""
    transpose_zero: float = 0.3
    """music, training only: the share of draws without a shift, as every piece is evaluated and sampled."""
    crop: int = 0
    """music, training only: a random stretch of this many steps of each longer piece, as if it were a whole one; 0:
    whole pieces. Places further in than that are then never trained."""
    train_size: int = 0
    """hmm, chords: sequences to draw for training; 0: the set's own number."""
    eval_size: int = 0
    """hmm, chords: sequences to draw for validation, and as many for the test; 0: the set's own number."""
    synthetic_seed: int = 0
    """hmm, chords: draws the sequences (the language itself is fixed)."""


@dataclass(frozen=True)
class PriorConfig:
    """p(z | T): a point on three axes, time / hidden / scalar, and its sizes (paper, section 4.3)."""

    time: Literal["af", "iaf", "none"] = "af"
    """What the context of step t sees: z_<t, eps_<t, or its position alone."""
    hidden: Literal["af", "scf", "none"] = "af"
    """Across the H dimensions of a step: autoregressive, split coupling, or no dependence."""
    scalar: Literal["nlsq", "affine"] = "nlsq"
    """The invertible scalar map inside."""
    layers: int = 5
    """J, layers of the hidden flow."""
    network_layers: int = 2
    """Hidden layers of the network in each layer of the hidden flow."""
    network_units: int = 100
    """Their units."""
    input_units: int = 0
    """A tanh layer of so many units between z_<t (IAF: eps_<t) and the LSTM over time; 0: none, as in the
    paper. With a small latent size an LSTM reads its few numbers badly without it."""
    lstm_layers: int = 2
    """Layers of the LSTM over time."""
    lstm_units: int = 500
    """Its units, and the size of the context."""
    dropout: float = 0.2
    """On that LSTM, between its layers and on its output."""
    alpha: float = 0.95
    """NLSq's bound on the perturbation, below 1 (the authors' code: effectively 0.9675)."""
    raw_scale: tuple[float, float, float] = (0.4, 0.3, 0.4)
    """Factors on the raw b', c', d' from the network, as in the authors' code; the affine map uses the first."""


@dataclass(frozen=True)
class LSTMConfig:
    """An LSTM of the model."""

    layers: int = 2
    units: int = 500
    dropout: float = 0.0
    """Between the layers and on the output."""


@dataclass(frozen=True)
class ModelConfig:
    """The model: latent flow or baseline, with the paper's sizes as defaults (supplement E)."""

    kind: Literal["latent", "lstm"] = "latent"
    """The latent flow, or the LSTM language model with the same T conditioning."""
    latent_size: int = 50
    """H, the size of z_t."""
    embedding_size: int = 500
    """Of the symbols; shared between the posterior's input and the emission's output if tied."""
    tie_embedding: bool = True
    """Use the input embedding as the output matrix (weight tying)."""
    latent_scale: float = 1.0
    """Posterior and emission think of z in this unit; 1: the paper's. Left alone, an autoencoder under a small
    KL weight puts its symbols tens of units apart, where the prior's networks are saturated; 0.1 keeps them near."""
    posterior_gain: float = 1.0
    """Factor on the posterior's initial weights to the means: far above 1, symbols start apart."""
    position_rank: int | None = None
    """Factored position embedding of this rank, for very long sequences; unset: a full row per position."""
    prior: PriorConfig = field(default_factory=PriorConfig)
    posterior: LSTMConfig = field(default_factory=LSTMConfig)
    emission: LSTMConfig = field(default_factory=LSTMConfig)
    baseline: LSTMConfig = field(default_factory=lambda: LSTMConfig(dropout=0.1))


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained, with the paper's schedule for text as defaults (supplement E)."""

    epochs: int = 60
    """Passes over the training data; the last ones may be left out by `early_stop`."""
    batch_size: int = 15
    """Sequences in a batch, over all processes."""
    accumulate: int = 1
    """Batches whose gradients are added up before a step."""
    samples: int = 10
    """S, samples of z for each sequence."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Adam with its usual moments, or plain gradient descent."""
    lr: float = 1e-3
    """The learning rate at the start."""
    lr_factor: float = 0.25
    """The learning rate is multiplied by this when the validation ELBO no longer improves."""
    patience: int = 1
    """Epochs without a better validation ELBO, counted once the KL weight is 1, before that happens."""
    lr_decay: int = 0
    """Also let the learning rate fall to 0 along a cosine over the last N epochs; 0: do not."""
    clip: float = 0.25
    """Gradients of a larger norm are scaled down to this norm; 0: never."""
    kl_zero: float = 4.0
    """Epochs at the start with KL weight 0."""
    kl_ramp: float = 10.0
    """Epochs over which the weight then rises to 1, a little with every step."""
    kl_steps: tuple[int, int] | None = None
    """The same two phases in steps instead of epochs: what a small set or a large batch needs, for too few
    steps at weight 0 end in a collapsed posterior."""
    early_stop: int = 0
    """Stop after this many epochs without a better validation ELBO, counted once the KL weight is 1;
    0: never."""
    ema: float = 0.0
    """Decay of a running mean of the weights, which is then what is evaluated and kept; 0: none."""
    eval_samples: int = 1
    """Samples of z for each sequence in the validation ELBO of an epoch."""
    eval_batch: int = 32
    """Sequences in a batch of that evaluation."""
    max_bad_steps: int = 20
    """A step whose loss or gradient is not finite is skipped; so many in a row end the run."""
    log_every: int = 50
    """Steps between two lines of metrics.jsonl."""
    checkpoint_minutes: float = 5.0
    """Time between two checkpoints inside an epoch (there is one after each epoch); 0: after every step."""
    device: str = "auto"
    """cpu, cuda, cuda:1; auto: a GPU where there is one."""
    tensorboard: bool = False
    """Also write TensorBoard's event files (needs the extra `latflow[tensorboard]`)."""


@dataclass(frozen=True)
class Config:
    """All that decides a run."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    seed: int = 0
    """Of the weights, the order of the data and every draw: the same seed gives the same run."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = get(self, name)
            for number in value if isinstance(value, tuple | list) else (value,):
                if number is not None and not isinstance(number, int | float):
                    raise LatflowError(f"{name} is {number!r}; it must be a number")
                if number is not None and not low <= number <= high:
                    upper = f" to {high:g}" if math.isfinite(high) else " or more"
                    raise LatflowError(f"{name} is {number}; accepted: {low:g}{upper}")
        prior, latent = self.model.prior, self.model.latent_size
        if not 0 < prior.alpha <= 0.9999:
            raise LatflowError(
                f"model.prior.alpha is {prior.alpha}; it must lie above 0 and not above 0.9999, for NLSq's least "
                "slope is 1 - alpha and float32 cannot tell a smaller one from none"
            )
        if self.model.kind == "latent" and prior.hidden == "af" and prior.network_units < latent:
            raise LatflowError(
                f"model.prior.network_units is {prior.network_units}; a masked network needs one for each of the "
                f"model.latent_size {latent} dimensions at least"
            )


_INF = math.inf
_RANGES: Mapping[str, tuple[float, float]] = {
    "seed": (0, 2**63 - 1),
    "model.latent_size": (1, 10_000),
    "model.embedding_size": (1, 100_000),
    "model.latent_scale": (1e-6, 1e6),
    "model.posterior_gain": (0, 1e6),
    "model.position_rank": (1, 10_000),
    "model.prior.layers": (1, 1000),
    "model.prior.network_layers": (1, 1000),
    "model.prior.network_units": (1, 100_000),
    "model.prior.input_units": (0, 100_000),
    "model.prior.lstm_layers": (1, 1000),
    "model.prior.lstm_units": (1, 100_000),
    "model.prior.dropout": (0, 1),
    "model.prior.raw_scale": (-1e6, 1e6),
    "model.posterior.layers": (1, 1000),
    "model.posterior.units": (1, 100_000),
    "model.posterior.dropout": (0, 1),
    "model.emission.layers": (1, 1000),
    "model.emission.units": (1, 100_000),
    "model.emission.dropout": (0, 1),
    "model.baseline.layers": (1, 1000),
    "model.baseline.units": (1, 100_000),
    "model.baseline.dropout": (0, 1),
    "train.epochs": (1, _INF),
    "train.batch_size": (1, _INF),
    "train.accumulate": (1, _INF),
    "train.samples": (1, _INF),
    "train.lr": (0, 1e6),
    "train.lr_factor": (0, 1),
    "train.patience": (1, _INF),
    "train.lr_decay": (0, _INF),
    "train.clip": (0, _INF),
    "train.kl_zero": (0, _INF),
    "train.kl_ramp": (0, _INF),
    "train.kl_steps": (0, _INF),
    "train.early_stop": (0, _INF),
    "train.ema": (0, 0.999999),
    "train.eval_samples": (1, _INF),
    "train.eval_batch": (1, _INF),
    "train.max_bad_steps": (1, _INF),
    "train.log_every": (1, _INF),
    "train.checkpoint_minutes": (0, _INF),
}
"""What numbers are accepted; a NaN is in no range."""

C = TypeVar("C")


def get(config: Any, name: str) -> Any:
    """The value of a dotted field, as in "model.prior.layers"."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def evolve(config: C, changes: Mapping[str, Any]) -> C:
    """A copy with some dotted fields changed: {"model.prior.layers": 3, "train.lr": 0.01}."""
    direct: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        head, _, rest = name.partition(".")
        known = [f.name for f in fields(config)]  # type: ignore[arg-type]
        if head not in known:
            raise LatflowError(f"no field {name!r} in {type(config).__name__}; accepted: {', '.join(known)}")
        if rest:
            nested.setdefault(head, {})[rest] = value
        else:
            direct[head] = value
    below = {head: evolve(getattr(config, head), inner) for head, inner in nested.items()}
    return replace(config, **direct, **below)  # type: ignore[type-var]


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every dotted field and its value."""
    flat: dict[str, Any] = {}
    for f in fields(config):
        value = getattr(config, f.name)
        name = f"{prefix}{f.name}"
        flat |= flatten(value, f"{name}.") if is_dataclass(value) else {name: value}
    return flat


def to_dict(config: Any) -> dict[str, Any]:
    """As JSON can hold it; `from_dict` gives the same config back."""
    return json.loads(json.dumps(asdict(config)))


def from_dict(raw: Any) -> Config:
    """A config from nested mappings, as read from JSON or YAML; what is left out keeps its default.

    Unknown fields and values of the wrong type are a LatflowError that names them.
    """
    return _read(Config, raw, "")


def _read(cls: type[C], raw: Any, where: str) -> C:
    if not isinstance(raw, Mapping):
        raise LatflowError(
            f"config: {where.rstrip('.') or 'the whole'} must be a mapping of fields, not {raw!r}"
        )
    hints = get_type_hints(cls)
    for name in raw:
        if name not in hints:
            raise LatflowError(f"config: unknown field {where}{name}; accepted: {', '.join(hints)}")
    return cls(**{name: _value(hints[name], value, f"{where}{name}") for name, value in raw.items()})


def _value(hint: Any, value: Any, name: str) -> Any:
    """The value as its field's type, or an error."""
    if is_dataclass(hint):
        return _read(hint, value, f"{name}.")  # type: ignore[arg-type]
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in options:
            return None
        (inner,) = (option for option in options if option is not type(None))
        return _value(inner, value, name)
    if origin is Literal:
        if value in options:
            return value
        raise LatflowError(f"config: {name} is {value!r}; accepted: {', '.join(map(str, options))}")
    if origin is tuple:
        if isinstance(value, (list, tuple)) and len(value) == len(options):
            return tuple(_value(option, part, name) for option, part in zip(options, value, strict=True))
        raise LatflowError(f"config: {name} is {value!r}; it must be a list of {len(options)} numbers")
    if hint is float and type(value) is int and abs(value) < 2**63:
        return float(value)
    if type(value) is not hint:
        kind = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}[hint]
        raise LatflowError(f"config: {name} is {value!r}; it must be {kind}")
    return value
