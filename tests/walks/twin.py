"""The two models written once more, from the paper's equations and docs/ alone: plain torch, one sequence at a time.

Nothing of the package is called. `w` holds the weights under their names in a checkpoint; a sequence is a vector of T
symbols; everything is in float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
LOG_TAU = math.log(2 * math.pi)


def below(w: Weights, prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in w.items() if name.startswith(prefix)}


def length_law(lengths: Sequence[int]) -> Tensor:
    """log p(T), T = 0, 1, …: the histogram, one added at every length up to int(1.25 x longest)."""
    counts = torch.zeros(int(1.25 * max(lengths)) + 1, dtype=torch.float64)
    counts[1:] = 1
    for T in lengths:
        counts[T] += 1
    return (counts / counts.sum()).log()


def position(w: Weights, t: int, T: int) -> Tensor:
    """p(t, T) = start[t] + end[T - 1 - t]."""
    return w["start"][t] + w["end"][T - 1 - t]


def cell(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = gates.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def lstm(w: Weights, layer: int, direction: int, x: Tensor, features: Tensor | None, h: Tensor, c: Tensor):
    """One direction of one layer over x (…, T, k), in the order given; h of every step."""
    units = w["recurrent_weight.0"].shape[-1]
    own = slice(4 * units * direction, 4 * units * (direction + 1))
    W, b = w[f"input_weight.{layer}"][own], w[f"bias.{layer}"][own]
    U = w[f"recurrent_weight.{layer}"][direction]
    found = []
    for t in range(x.shape[-2]):
        gates = x[..., t, :] @ W.T + h @ U.T + b
        if features is not None:
            gates = gates + features[t, own]
        h, c = cell(gates, c)
        found.append(h)
    return torch.stack(found, -2)


def bilstm(w: Weights, positions: Weights, x: Tensor) -> tuple[Tensor, Tensor]:
    """The last layer's two directions over x (…, T, k), each (…, T, units), both in the order of time."""
    T, layers = x.shape[-2], sum(name.startswith("bias.") for name in w)
    units = w["recurrent_weight.0"].shape[-1]
    features = torch.stack([position(positions, t, T) for t in range(T)])
    past = future = x
    for layer in range(layers):
        zeros = x.new_zeros(*x.shape[:-2], units)
        own = features if layer == 0 else None
        past = lstm(w, layer, 0, x, own, zeros, zeros)
        turned = None if own is None else own.flip(0)
        future = lstm(w, layer, 1, x.flip(-2), turned, zeros, zeros).flip(-2)
        x = torch.cat([past, future], -1)
    return past, future


def contexts(w: Weights, y: Tensor) -> Tensor:
    """c_t(y_<t, T), (…, T, units): the LSTM whose input at t is y_t with the position of step t + 1."""
    lstm_w, T = below(w, "lstm."), y.shape[-2]
    layers = sum(name.startswith("bias.") for name in lstm_w)
    first = torch.relu(position(below(w, "start_positions."), 0, T))
    start = (w["start_state.weight"] @ first + w["start_state.bias"]).chunk(2 * layers)
    places = below(w, "positions.")
    features = torch.stack([position(places, t + 1, T) for t in range(T - 1)]) if T > 1 else None
    x, begin = y[..., : T - 1, :], start[0]
    for layer in range(layers):
        h, c = (start[2 * layer + k].expand(*y.shape[:-2], start[0].shape[0]) for k in range(2))
        begin = h
        x = lstm(lstm_w, layer, 0, x, features if layer == 0 else None, h, c) if T > 1 else x
    if T == 1:
        return begin[..., None, :]
    return torch.cat([begin[..., None, :], x], -2)


def nlsq_inverse(z: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
    """eps = a + b z + c / (1 + (d z + g)²) and log deps/dz by differentiating it; b, c, d from raw (…, 5)."""
    a, b, c, d, g = raw.unbind(-1)
    b, d = torch.exp(0.4 * b), torch.exp(0.4 * d)
    c = 8 * math.sqrt(3) / 9 * 0.95 * (b / d) * torch.tanh(0.3 * c)
    u = d * z + g
    slope = b - 2 * c * d * u / (1 + u**2) ** 2
    return a + b * z + c / (1 + u**2), slope.log()


def af_log_prob(w: Weights, z: Tensor, context: Tensor) -> Tensor:
    """log p(z_t | context_t) of J autoregressive layers over H dimensions, the order reversed in every second one."""
    H, layers = z.shape[-1], sum(name.endswith("matrices.0") for name in w)
    total = z.new_zeros(z.shape[:-1])
    projected = (context @ w["context_weight"].T).chunk(layers, -1)
    for layer in reversed(range(layers)):
        net = below(w, f"networks.{layer}.")
        units = net["matrices.0"].shape[0]
        depth = sum(name.startswith("matrices.") for name in net) - 1
        rank = [H - 1 - d for d in range(H)] if layer % 2 else list(range(H))
        degree = [u * H // units for u in range(units)]
        sees = torch.tensor([[degree[u] > rank[d] for d in range(H)] for u in range(units)])
        within = torch.tensor([[degree[u] >= degree[v] for v in range(units)] for u in range(units)])
        out = torch.tensor([[rank[k % H] >= degree[u] for u in range(units)] for k in range(5 * H)])
        y = z @ (net["matrices.0"] * sees).T + net["biases.0"] + projected[layer]
        for k in range(1, depth + 1):
            mask = within if k < depth else out
            y = torch.relu(y) @ (net[f"matrices.{k}"] * mask).T + net[f"biases.{k}"]
        raw = torch.stack(y.chunk(5, -1), -1)
        z, logdet = nlsq_inverse(z, raw)
        total = total + logdet.sum(-1)
    return total - 0.5 * (z**2 + LOG_TAU).sum(-1)


def latent_terms(w: Weights, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """log p(x_t | z, T) and log q(z_t | x) - log p(z_t | z_<t, T), (S, T), at z = μ + σ noise, noise (S, T, H)."""
    embedding = w["alphabet.embedding"]
    hidden = torch.cat(
        bilstm(below(w, "posterior.lstm."), below(w, "posterior.positions."), embedding[x]), -1
    )
    mean, log_variance = (hidden @ w["posterior.head.weight"].T + w["posterior.head.bias"]).chunk(2, -1)
    sigma = torch.exp(0.5 * log_variance)
    z = mean + sigma * noise
    log_q = (-0.5 * ((z - mean) / sigma) ** 2 - sigma.log() - 0.5 * LOG_TAU).sum(-1)
    log_p = af_log_prob(below(w, "prior.hidden."), z, contexts(below(w, "prior.context."), z))
    past, future = bilstm(below(w, "emission.lstm."), below(w, "emission.positions."), z)
    nothing = torch.zeros_like(past[..., :1, :])
    past = torch.cat([nothing, past[..., :-1, :]], -2)
    future = torch.cat([future[..., 1:, :], nothing], -2)
    features = torch.cat([z, past, future], -1) @ w["emission.head.weight"].T + w["emission.head.bias"]
    scores = features @ embedding.T + w["alphabet.bias"]
    log_x = scores.gather(-1, x.expand(scores.shape[:-1])[..., None])[..., 0] - scores.logsumexp(-1)
    return log_x, log_q - log_p


def baseline_terms(w: Weights, x: Tensor) -> tuple[Tensor, Tensor]:
    """log p(x_t | x_<t, T), (1, T), and zeros."""
    embedding = w["alphabet.embedding"]
    context = contexts(below(w, "context."), embedding[x])
    features = context @ w["head.weight"].T + w["head.bias"]
    scores = features @ embedding.T + w["alphabet.bias"]
    log_x = scores.gather(-1, x[:, None])[:, 0] - scores.logsumexp(-1)
    return log_x[None], torch.zeros_like(log_x)[None]
