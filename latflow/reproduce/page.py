"""docs/results.md, from the result files alone: what was run, what was not, and the tables."""

from __future__ import annotations

from collections.abc import Mapping

from latflow.reproduce.render import Shown, as_markdown, figure, fill
from latflow.reproduce.result import Result, command
from latflow.reproduce.tables import TABLES

HEAD = """\
# Results

This page is written by `latflow reproduce all --show --docs docs/results.md` from the files in `results/`, one for
each run that was trained to its end and then evaluated on the test set. A row without such a file says "not run". A
number that was not measured is not printed. Settings were chosen on validation data; where a row was trained again with
better ones, its test set was read again, and the [log](log.md) says which rows and how often.

Conventions: NLL = −Σ [log p(x | T) + log p(T)] / Σ (T + 1), in bits for text and nats for music. With K importance
samples it is an upper bound on average, and the looser the fewer of the K are effective. The interval is 1.96 standard
errors over test sequences; it leaves out the noise of the samples and of the seed, of which there is one.
−ELBO = reconstruction + KL + length. Differences are ours minus the paper's, and stand only where model, sizes and data
are the paper's. Minutes are those of the clock, of training and validation, on a machine that may have had other work.
Where latflow differs from the paper: [deviations](deviations.md).
"""

NOTES = """\
What the tables say:

- JSB chorales, the paper's rows: the flows do not differ from each other or from the paper's beyond their
  intervals, and all are far ahead of the LSTM. The models are the paper's, their training is not: more dropout (in
  IAF / SCF too), a KL weight that rises by steps, a running mean of the weights, a cosine for the rate; the LSTM by
  Adam with small batches ([deviations](deviations.md)). The test set of the flows was read a second time, for AF /
  AF a third, after a better schedule was found on validation data.
- Nottingham with AF / AF at the paper's sizes has had eight epochs only, where the paper's KL weight alone takes 35
  to come to 1.
- Penn Treebank, small models: to be compared with each other only. The order of Table 1 is there. In Table 2 each
  part that is taken away is missed, as in the paper, but NLSq more than dependence across hidden, where the paper
  has it the other way round. IAF / SCF has batches of 16 where the others have 8, the LSTM twice their rate. The
  flow learns more slowly than the LSTM: 0.25 bits behind after two passes, 0.09 after fourteen, 0.01 in the paper.
  Some thirty trials of AF / AF, seven of the LSTM, three of AF-only and none of the other rows, one seed each.
- Beyond the paper: with a codebook the posterior fits, most of the K samples are effective, and what is printed is no
  loose bound (coupling, NLSq, affine maps and IAF excepted). JSB: eleven trials of AF / AF on validation data
  ([log](log.md)), its test set read once a seed for each of two settings; seeds 0, 1 and 2 have 4.746, 4.765 and
  4.773 (`latflow train jsb-af-af-codebook --seed 1`), mean 4.761, standard deviation 0.014; without dropout on the
  recurrent weights 4.932, 4.956 and 4.972. The LSTM of these rows has the same dropout and no trials of its own.
  Nottingham: 1.92 where RNN-NADE has 2.31, the second of two settings, chosen on validation data (1.89; 2.10 with
  fewer epochs, 2.13 on test). The paper's LSTM on Nottingham is one run, nothing tuned, still falling at its end.
  MuseData: 5.28 where RNN-NADE has 5.60, the second of two settings, chosen on validation data (the first, with
  batches twice as large and more dropout, was far behind when it was stopped). Piano-midi: 6.77 where RNN-NADE has
  7.05, with intervals of 0.41 on 25 pieces; the third of three settings, chosen on validation data, where it has 7.22
  (7.34, 6.81 on test, without dropout on the recurrent weights). Penn Treebank with one layer of 500 units, fourteen
  passes, one seed: the flow has 1.4185, the LSTM with the same sizes and training 1.4210, a paired difference of
  0.0025 ± 0.0014 (95 %, `latflow compare`). On validation data the LSTM is ahead after ten of the passes, by 0.0009
  at the end, so the two are level. The third of three settings, chosen on validation data, where it has 1.4555 and
  1.4546 (six passes 1.5052 and 1.5106, twelve with more dropout 1.509 and 1.514; on test 1.4654 and 1.4725, 1.4728
  and 1.4763, read once for each). 1.41, which the paper's LSTM of two layers has, is missed by 0.008 and 0.011;
  nothing overfits, so it is size and passes that lack ([log](log.md)). Penn Treebank, small, two passes: the flow and
  the LSTM are the same model but for the way through z, and the flow is ahead by as little as the seeds differ; seeds
  0, 1 and 2 have 1.6932, 1.6980 and 1.6941 (mean 1.6951, standard deviation 0.0026), the LSTM with the same seeds
  1.6975, 1.7006 and 1.6958 (1.6980, 0.0024), so 0.0044, 0.0026 and 0.0017 (`latflow train ptb-af-af-codebook-small
  --seed 1`; seeds 1 and 2 with K = 5, all effective). The other rows of it, one seed and no trials: one layer of free
  mixtures 1.755, five of NLSq 1.831 (6.5 of 50 samples), split coupling 2.015, affine maps 2.297 (a loose bound, 2 of
  50 samples), no dependence across hidden 2.395, IAF with AF in hidden 2.907 and with coupling 3.125 (3 of 50
  samples), affine maps without dependence 3.000, no dynamics 4.299: the order of Tables 1 and 2. Without dynamics,
  and with IAF, it is far behind the paper's posterior (2.98 and 2.67), for a posterior and an emission that see one
  step alone leave no way around such a prior. The same on JSB: IAF / SCF has 7.45 (1.8 of 50 samples), 6.54 with the
  paper's posterior. `hmm`: the tied and the free mixtures are within 0.008 bits of the truth, coupling and NLSq
  within 0.02. `chords`: 0.04 nats above it with 100,000 progressions, 0.10 with 16,000 and a narrower model, whose
  test set was read before."""

ANEW = """\
Every file names the command that makes it anew, in a clone (`--anew` measures though the file is there, and tells both
numbers):

```
latflow reproduce beyond-synthetic --only hmm-af-af-codebook --anew
```

A row with a commit gives its number again on the same machine, and a test replays the first steps of three of them
against what their files hold. A row without one was trained by an earlier state of the code (the end of the cosine and
the order of some sums moved since); trained today it differs beyond rounding, within what another seed would.

An interrupted training goes on where it stopped when the same command is given again."""


def page(results: Mapping[str, Result]) -> str:
    """The whole page. Small tables stand on it only if a small model was run."""
    full = [fill(table, False, results) for table in TABLES.values()]
    small = [fill(table, True, results) for table in TABLES.values() if table.sizes]
    parts = [HEAD, NOTES, _ran(full, small), ANEW]
    for shown in full:
        parts.append(as_markdown(shown))
        parts += [as_markdown(s) for s in small if s.table is shown.table and s.measured]
    if results:
        parts.append(_runs(results))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _ran(full: list[Shown], small: list[Shown]) -> str:
    """How many rows of each table were run, in a list."""
    lines = ["What was run:", ""]
    for shown in (*full, *(s for s in small if s.measured)):
        rows = {
            line.preset: line for block in shown.blocks for line in block.lines if line.preset is not None
        }
        done = [name for name, line in rows.items() if line.result is not None]
        missing = [name for name, line in rows.items() if line.result is None]
        text = f"- {shown.title}: {len(done)} of {len(rows)} rows"
        if done and missing:
            text += f"; not run: {', '.join(str(name) for name in missing)}"
        lines.append(text)
    if not any(s.measured for s in small):
        lines.append("- Small versions of Tables 1 to 3: none")
    return "\n".join(lines)


def _runs(results: Mapping[str, Result]) -> str:
    """The particulars of each run: how to make it, and how the estimate depends on K."""
    lines = [
        "## The runs",
        "",
        "The KL weight is that of the training at the best epoch; validation and test have weight 1.",
        "",
        "| run | command | commit | epochs (best) | updates | KL weight | seed | NLL at K samples |",
        "|---|---|---|--:|--:|--:|--:|---|",
    ]
    for name, result in results.items():
        at = result.metrics.get("nll_at") or {}
        ladder = ", ".join(f"{k}: {figure(value)}" for k, value in at.items()) if len(at) > 1 else "exact"
        curve, best = result.curve, result.best_epoch
        weight = "" if ladder == "exact" else f"{curve['kl_weight'][best - 1]:.2f}"
        cells = (
            name,
            f"`{command(name, result.trained_with)}`",
            result.commit or "none",
            f"{result.epochs} ({best})",
            f"{curve['updates'][-1]:,}",
            weight,
            str(result.seed),
            ladder,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
