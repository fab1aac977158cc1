"""One tree of frozen dataclasses for a run. Standard library only, so that reading a config is instant."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from latflow.axes import AXES, Choice, choice, ranged
from latflow.errors import LatflowError
from latflow.former import upgraded


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
    """p(z | T): a point on the axes time / hidden / scalar / context / reading (paper, section 4.3).

    A choice may be given by its name, or by a mapping of its name and options; it is read as a `Choice`.
    """

    time: Any = choice("time", "af")
    """What the context of step t sees: z_<t, eps_<t, or its position alone."""
    hidden: Any = choice("hidden", "af")
    """Across the H dimensions of a step: autoregressive, split coupling, no dependence, or the tied codebook."""
    scalar: Any = choice("scalar", "nlsq")
    """The invertible scalar map inside."""
    context: Any = choice("context", "lstm")
    """What makes a context of the steps before."""
    reading: Any = choice("reading", "raw")
    """How the context reads z_t (IAF: eps_t)."""

    def __post_init__(self) -> None:
        _read_choices(self)


@dataclass(frozen=True)
class LSTMConfig:
    """The LSTM of the baseline."""

    layers: int = ranged(2, 1, 1000)
    units: int = ranged(500, 1, 100_000)
    dropout: float = ranged(0.1, 0, 1)
    """On the embedded symbols, between the layers and on the output."""
    recurrent_dropout: float = ranged(0.0, 0, 1)
    """On the entries of its recurrent matrices, the same ones for all steps of a batch."""
    unigram: bool = False
    """Start the output bias at how often symbols occur, as the codebook rows do: much faster in the first pass."""


@dataclass(frozen=True)
class ModelConfig:
    """The model: latent flow or baseline, with the paper's sizes as defaults (supplement E)."""

    kind: Literal["latent", "lstm"] = "latent"
    """The latent flow, or the LSTM language model with the same T conditioning."""
    latent_size: int | None = ranged(50, 1, 10_000)
    """H, the size of z_t; unset: what the posterior's codes need."""
    embedding_size: int = ranged(500, 1, 100_000)
    """Of the symbols; shared between input and output where both are embedded and tied."""
    tie_embedding: bool = True
    """Use the input embedding as the output matrix (weight tying)."""
    position_rank: int | None = ranged(None, 1, 10_000)
    """Factored position embedding of this rank, for very long sequences; unset: a full row per position."""
    position_cap: int | None = ranged(None, 1, 100_000)
    """Let prior and baseline count the steps from the start and to the end up to this many only; unset: all of them,
    as in the paper. A small set is memorised by its lengths otherwise, and a capped model knows no longest length."""
    condition_size: int = ranged(16, 1, 10_000)
    """Features of a sequence's label and transposition, where the data has them."""
    prior: PriorConfig = field(default_factory=PriorConfig)
    posterior: Any = choice("posterior", "bilstm")
    """q(z | x)."""
    emission: Any = choice("emission", "bilstm")
    """p(x | z)."""
    baseline: LSTMConfig = field(default_factory=LSTMConfig)

    def __post_init__(self) -> None:
        _read_choices(self)


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained, with the paper's schedule for text as defaults (supplement E)."""

    epochs: int = ranged(60, 1)
    """Passes over the training data; the last ones may be left out by `early_stop`."""
    batch_size: int = ranged(15, 1)
    """Sequences in a batch, over all processes."""
    batch_by: Literal["sequences", "steps"] = "sequences"
    """What weighs the same: sequences, as in the paper, or steps, as in the NLL. Batches then have as many steps as
    `batch_size` sequences of mean length."""
    accumulate: int = ranged(1, 1)
    """Batches whose gradients are added up before a step."""
    samples: int = ranged(10, 1)
    """S, samples of z for each sequence."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Adam with its usual moments, or plain gradient descent."""
    products: Literal["float32", "bfloat16"] = "float32"
    """What an LSTM multiplies in training: numbers as they are, or rounded to bfloat16 and summed in float32, which is
    faster for wide ones where the processor has instructions for it (AMX, AVX-512 BF16), and not elsewhere."""
    lr: float = ranged(1e-3, 0, 1e6)
    """The learning rate at the start."""
    lr_factor: float = ranged(0.25, 0, 1)
    """The learning rate is multiplied by this when the validation ELBO no longer improves."""
    patience: int = ranged(1, 1)
    """Epochs without a better validation ELBO, counted once the KL weight is 1, before that happens."""
    lr_decay: int = ranged(0, 0)
    """Also let the learning rate fall to 0 along a cosine over the last N epochs; 0: do not."""
    clip: float = ranged(0.25, 0)
    """Gradients of a larger norm are scaled down to this norm; 0: never."""
    kl_zero: float = ranged(4.0, 0)
    """Epochs at the start with KL weight 0."""
    kl_ramp: float = ranged(10.0, 0)
    """Epochs over which the weight then rises to 1, a little with every step."""
    kl_steps: tuple[int, int] | None = ranged(None, 0)
    """The same two phases in steps instead of epochs: what a small set or a large batch needs, for too few
    steps at weight 0 end in a collapsed posterior."""
    early_stop: int = ranged(0, 0)
    """Stop after this many epochs without a better validation ELBO, counted once the KL weight is 1;
    0: never."""
    ema: float = ranged(0.0, 0, 0.999999)
    """Decay of a running mean of the weights, which is then what is evaluated and kept; 0: none."""
    eval_samples: int = ranged(1, 1)
    """Samples of z for each sequence in the validation ELBO of an epoch."""
    eval_batch: int = ranged(32, 1)
    """Sequences in a batch of that evaluation."""
    max_bad_steps: int = ranged(20, 1)
    """A step whose loss or gradient is not finite is skipped; so many in a row end the run."""
    log_every: int = ranged(50, 1)
    """Steps between two lines of metrics.jsonl."""
    checkpoint_minutes: float = ranged(5.0, 0)
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
    seed: int = ranged(0, 0, 2**63 - 1)
    """Of the weights, the order of the data and every draw: the same seed gives the same run."""

    def __post_init__(self) -> None:
        check_ranges(self)
        hidden, latent = self.model.prior.hidden, self.model.latent_size
        if self.model.kind == "latent" and hidden.name == "af" and latent and hidden.units < latent:
            raise LatflowError(
                f"model.prior.hidden.units is {hidden.units}; a masked network needs one for each of the "
                f"model.latent_size {latent} dimensions at least"
            )


C = TypeVar("C")


def get(config: Any, name: str) -> Any:
    """The value of a dotted field, as in "model.prior.hidden.layers"."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def check_ranges(config: Any, prefix: str = "") -> None:
    """Every number is within the range of its field; a NaN is in no range."""
    for f in fields(config):
        name, value = f"{prefix}{f.name}", getattr(config, f.name)
        below = value.options if isinstance(value, Choice) else value
        if is_dataclass(below):
            check_ranges(below, f"{name}.")
        elif "range" in f.metadata:
            low, high = f.metadata["range"]
            for number in value if isinstance(value, tuple | list) else (value,):
                if number is not None and not isinstance(number, int | float):
                    raise LatflowError(f"{name} is {number!r}; it must be a number")
                if number is not None and not low <= number <= high:
                    upper = f" to {high:g}" if math.isfinite(high) else " or more"
                    raise LatflowError(f"{name} is {number}; accepted: {low:g}{upper}")


def evolve(config: C, changes: Mapping[str, Any]) -> C:
    """A copy with some dotted fields changed: {"model.prior.hidden": "scf", "model.prior.hidden.layers": 3}.

    A new choice on an axis keeps the options that it shares with the one before.
    """
    return _evolve(config, changes, "")


def _evolve(config: Any, changes: Mapping[str, Any], where: str) -> Any:
    if isinstance(config, Choice):
        return replace(config, options=_evolve(config.options, changes, where))
    direct: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    known = [f.name for f in fields(config)]
    for name, value in changes.items():
        head, _, rest = name.partition(".")
        if head not in known:
            owner = where.rstrip(".") or type(config).__name__
            raise LatflowError(
                f"no field {name!r} in {owner}; accepted: {', '.join(known) or 'none, it has no options'}"
            )
        if rest:
            nested.setdefault(head, {})[rest] = value
        else:
            direct[head] = value
    for head, value in direct.items():
        before = getattr(config, head)
        if isinstance(before, Choice) and isinstance(value, str):
            _known(before.axis, value, f"{where}{head}")
            direct[head] = before.renamed(value)
    for head, inner in nested.items():
        direct[head] = _evolve(direct.get(head, getattr(config, head)), inner, f"{where}{head}.")
    return replace(config, **direct)


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every dotted field and its value: a choice as its name, then its options."""
    flat: dict[str, Any] = {}
    for f in fields(config):
        value, name = getattr(config, f.name), f"{prefix}{f.name}"
        if isinstance(value, Choice):
            flat |= {name: value.name, **flatten(value.options, f"{name}.")}
        else:
            flat |= flatten(value, f"{name}.") if is_dataclass(value) else {name: value}
    return flat


def to_dict(config: Any) -> dict[str, Any]:
    """As JSON can hold it; `from_dict` gives the same config back."""
    return json.loads(json.dumps(_plain(config)))


def _plain(config: Any) -> Any:
    if isinstance(config, Choice):
        return {"name": config.name, **_plain(config.options)}
    if is_dataclass(config):
        return {f.name: _plain(getattr(config, f.name)) for f in fields(config)}
    return config


def choices(config: Any) -> Iterator[Choice]:
    """Every choice on an axis that a config makes."""
    for f in fields(config):
        value = getattr(config, f.name)
        if isinstance(value, Choice):
            yield value
        elif is_dataclass(value):
            yield from choices(value)


def from_dict(raw: Any) -> Config:
    """A config from nested mappings, as read from JSON or YAML; what is left out keeps its default.

    Unknown fields and values of the wrong type are a LatflowError that names them. Fields of versions before are
    read as what they are called now.
    """
    return _read(Config, upgraded(raw), "")


def _read(cls: type[C], raw: Any, where: str) -> C:
    if not isinstance(raw, Mapping):
        raise LatflowError(
            f"config: {where.rstrip('.') or 'the whole'} must be a mapping of fields, not {raw!r}"
        )
    hints, axes = get_type_hints(cls), {f.name: f.metadata.get("axis") for f in fields(cls)}  # type: ignore[arg-type]
    for name in raw:
        if name not in axes:
            accepted = ", ".join(axes) or "none, it has no options"
            raise LatflowError(f"config: unknown field {where}{name}; accepted: {accepted}")
    values = {}
    for name, value in raw.items():
        axis, field_name = axes[name], f"{where}{name}"
        if axis is None:
            values[name] = _value(hints[name], value, field_name)
        else:
            values[name] = _choice(axis, value, field_name, getattr(cls(), name).name)
    return cls(**values)


def _read_choices(config: Any) -> None:
    """Let a choice be given by its name, or by a mapping of its name and options, in Python too."""
    for f in fields(config):
        value = getattr(config, f.name)
        if "axis" in f.metadata and not isinstance(value, Choice):
            object.__setattr__(config, f.name, _choice(f.metadata["axis"], value, f.name))


def _choice(axis: str, value: Any, name: str, default: str | None = None) -> Choice:
    """A choice from its name, or from a mapping of its name (or `default`) and options."""
    options = dict(value) if isinstance(value, Mapping) else {"name": value}
    chosen = options.pop("name", default)
    if not isinstance(chosen, str):
        raise LatflowError(
            f"config: {name} is {value!r}; it must be a name ({', '.join(AXES[axis])}), or a mapping with one"
        )
    _known(axis, chosen, name)
    return Choice(axis, chosen, _read(AXES[axis][chosen].options, options, f"{name}."))


def _known(axis: str, chosen: str, name: str) -> None:
    try:
        AXES[axis][chosen]
    except KeyError:
        raise LatflowError(f"config: {name} is {chosen!r}; accepted: {', '.join(AXES[axis])}") from None


_KINDS = {int: "whole number", float: "number", bool: "true or false", str: "string"}


def _value(hint: Any, value: Any, name: str, otherwise: str = "") -> Any:
    """The value as its field's type, or an error; `otherwise` says what else is accepted."""
    if is_dataclass(hint):
        return _read(hint, value, f"{name}.")  # type: ignore[arg-type]
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in options:
            return None
        (inner,) = (option for option in options if option is not type(None))
        return _value(inner, value, name, ", or null")
    if origin is Literal:
        if value in options:
            return value
        accepted = ", ".join(map(str, options))
        raise LatflowError(f"config: {name} is {value!r}; accepted: {accepted}{otherwise}")
    if origin is tuple:
        if isinstance(value, (list, tuple)) and len(value) == len(options):
            return tuple(_value(option, part, name) for option, part in zip(options, value, strict=True))
        raise LatflowError(
            f"config: {name} is {value!r}; it must be a list of {len(options)} "
            f"{_KINDS[options[0]]}s{otherwise}"
        )
    if hint is float and type(value) is int and abs(value) < 2**63:
        return float(value)
    if type(value) is not hint:
        kind = _KINDS[hint] if hint is bool else f"a {_KINDS[hint]}"
        raise LatflowError(f"config: {name} is {value!r}; it must be {kind}{otherwise}")
    return value
