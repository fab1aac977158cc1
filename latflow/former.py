"""Configs as versions before wrote them, read as what they are called now. Standard library only.

Until 0.1 the options of every choice stood flat beside each other; now they stand with the choice they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOVED: Mapping[str, tuple[str, ...]] = {
    "model.latent_scale": ("model.posterior.scale", "model.emission.scale"),
    "model.posterior_gain": ("model.posterior.gain",),
    "model.prior.layers": ("model.prior.hidden.layers",),
    "model.prior.network_layers": ("model.prior.hidden.depth",),
    "model.prior.network_units": ("model.prior.hidden.units",),
    "model.prior.lstm_layers": ("model.prior.context.layers",),
    "model.prior.lstm_units": ("model.prior.context.units",),
    "model.prior.dropout": ("model.prior.context.dropout",),
    "model.prior.input_units": ("model.prior.reading.units",),
    "model.prior.alpha": ("model.prior.scalar.alpha",),
    "model.prior.raw_scale": ("model.prior.scalar.raw_scale",),
}
"""Fields of before, and what they are now."""


def upgraded(raw: Any) -> Any:
    """Nested mappings of a config with the fields of before in their new places."""
    model = raw.get("model") if isinstance(raw, Mapping) else None
    prior = model.get("prior") if isinstance(model, Mapping) else None
    there = [name for name in MOVED if _at(raw, name) is not _ABSENT]
    if not isinstance(model, Mapping) or not there:
        return raw
    prior = dict(prior) if isinstance(prior, Mapping) else {}
    choices = {name: _choice(prior.get(name)) for name in ("time", "hidden", "scalar", "context", "reading")}
    ends = {name: dict(model.get(name) or {}) for name in ("posterior", "emission")}
    new = {**{f"prior.{name}": options for name, options in choices.items()}, **ends}
    for name in there:
        value = _at(raw, name)
        for place in MOVED[name]:
            axis, _, option = place.removeprefix("model.").rpartition(".")
            new[axis][option] = value
    _settle(choices)
    kept = {name: value for name, value in model.items() if f"model.{name}" not in MOVED}
    kept_prior = {name: value for name, value in prior.items() if f"model.prior.{name}" not in MOVED}
    kept_prior |= {name: options for name, options in choices.items() if options}
    return {**raw, "model": {**kept, **{n: o for n, o in ends.items() if o}, "prior": kept_prior}}


def _settle(choices: dict[str, dict[str, Any]]) -> None:
    """What of before was implied, or said of a choice that was not made."""
    reading, context, scalar = choices["reading"], choices["context"], choices["scalar"]
    if reading.get("units") == 0:
        reading.clear()
    elif reading:
        reading.setdefault("name", "layer")
    if choices["time"].get("name") == "none":
        units = context.get("units")
        context.clear()
        context |= {"name": "position"} if units is None else {"name": "position", "units": units}
        reading.clear()
    if scalar.get("name") == "affine":
        scalar.pop("alpha", None)
        if isinstance(scale := scalar.get("raw_scale"), (list, tuple)):
            scalar["raw_scale"] = scale[0]


def _choice(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    return dict(value) if isinstance(value, Mapping) else {"name": value}


_ABSENT = object()


def _at(raw: Any, name: str) -> Any:
    for part in name.split("."):
        if not isinstance(raw, Mapping) or part not in raw:
            return _ABSENT
        raw = raw[part]
    return raw


RENAMED_WEIGHTS: Mapping[str, str] = {
    "emission.alphabet.": "alphabet.",
    "prior.context.entry.": "prior.context.reading.",
}
"""Beginnings of the names of weights in folders of format 1, and what they are now."""


def renamed(name: str) -> str:
    """The name of a weight of before, as it is now."""
    for before, now in RENAMED_WEIGHTS.items():
        if name.startswith(before):
            return now + name.removeprefix(before)
    return name
