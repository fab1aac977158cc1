"""The loop: schedules, what it does with bad steps, what it learns."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from latflow import data
from latflow.config import TrainConfig, evolve, to_dict
from latflow.errors import LatflowError
from latflow.training.distributed import World
from latflow.training.evaluate import evaluate
from latflow.training.fit import train
from latflow.training.loop import Trainer
from latflow.training.optimize import cosine, kl_weight
from latflow.training.report import Reporter
from latflow.training.run import TRAINER, Run
from latflow.training.stored import weights_of
from tests.training.tiny import config


def trainer_of(settings, folder) -> Trainer:
    corpus = data.load(settings.data)
    return Trainer(Run.create(folder, settings, corpus.spec), corpus, World(), Reporter(quiet=True))


def test_kl_weight_moves_inside_an_epoch():
    text = TrainConfig()  # 4 epochs at 0, a ramp of 10
    assert [kl_weight(text, u, 10) for u in (0, 39, 40, 41, 90, 139, 140, 500)] == pytest.approx(
        [0, 0, 0, 0.01, 0.5, 0.99, 1, 1]
    )
    in_steps = TrainConfig(kl_steps=(5, 0))
    assert [kl_weight(in_steps, u, 10) for u in (4, 5)] == [0, 1]
    assert kl_weight(TrainConfig(kl_zero=0, kl_ramp=0), 0, 10) == 1


def test_cosine_falls_over_the_last_epochs_only():
    c = TrainConfig(epochs=10, lr_decay=4)
    assert [cosine(c, epochs) for epochs in (0, 6, 8, 10)] == pytest.approx([1, 1, 0.5, 0])
    assert cosine(TrainConfig(epochs=10), 10) == 1
    longer = TrainConfig(epochs=2, lr_decay=8)  # begins at the full rate all the same
    assert [cosine(longer, epochs) for epochs in (0, 1, 2)] == pytest.approx([1, 0.5, 0])


def test_loss_is_the_mean_of_elbo_per_step(tmp_path):
    """mean_i - ELBO_i / (T_i + 1), over a group of batches as over one, also where the last batch is smaller."""
    settings = config("hmm-lstm", data__train_size=13, train__batch_size=5, train__accumulate=3)
    trainer = trainer_of(settings, tmp_path / "run")
    trainer.gradient(list(trainer.batches.epoch(0)), 1.0, 0, 0)
    found = [p.grad.clone() for p in trainer.parameters if p.grad is not None]
    trainer.optimizer.zero_grad()
    (batch,) = data.Batches(trainer.corpus.splits["train"], 13).epoch(0)
    (-trainer.model.terms(batch).elbo() / (batch.lengths + 1)).mean().backward()
    for ours, p in zip(found, trainer.parameters, strict=True):
        torch.testing.assert_close(ours, p.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("row", ["af-af", "iaf-scf", "lstm"])
def test_products_are_rounded_in_training_and_nowhere_else(tmp_path, row):
    """The gradient of the same weights and noise is a little different, the validation is not."""
    exact, rounded = (
        trainer_of(config(f"hmm-{row}", train__products=products), tmp_path / products)
        for products in ("float32", "bfloat16")
    )
    for trainer in (exact, rounded):
        trainer.model.train()
        trainer.gradient(list(trainer.batches.epoch(0))[:1], 1.0, 0, 0)
    grads = [
        torch.cat([p.grad.flatten() for p in trainer.parameters if p.grad is not None])
        for trainer in (exact, rounded)
    ]
    distance = (grads[0] - grads[1]).norm() / grads[0].norm()
    assert 1e-5 < distance < 0.1
    assert exact.validate() == rounded.validate()


@pytest.mark.parametrize("row", ["af-af", "af-scf", "iaf-scf", "af-only", "af-none-affine", "lstm"])
def test_every_parameter_has_a_gradient_at_kl_weight_zero(tmp_path, row):
    """The KL is multiplied by 0, not left out, so that no process waits for a gradient that never comes."""
    trainer = trainer_of(config(f"hmm-{row}"), tmp_path / "run")
    batch = next(trainer.batches.epoch(0))
    (-trainer.model.terms(batch, 2).elbo(0.0)).sum().backward()
    assert [name for name, p in trainer.model.named_parameters() if p.grad is None] == []


def test_learning_rate_drops_on_a_plateau_once_the_kl_weight_is_one(tmp_path, monkeypatch):
    settings = config(train__epochs=8, train__patience=2, train__kl_steps=(20, 0), data__train_size=40)
    trainer = trainer_of(settings, tmp_path / "run")  # 5 steps an epoch: weight 1 from the end of epoch 4
    real = trainer.validate()
    elbos = iter([9.0, 5.0, 6.0, 7.0, 5.5, 5.4, 4.0, 4.1])
    monkeypatch.setattr(
        trainer, "validate", lambda: type(real)(**{**vars(real), "negative_elbo": next(elbos)})
    )
    trainer.fit()
    rates = [line["lr"] for line in trainer.run.metrics() if line["kind"] == "epoch"]
    lr = settings.train.lr
    # Epoch 3 is worse but at weight 0; 4 and 5 are the two without a better one; 7 is better.
    assert rates == [lr] * 5 + [lr / 4] * 3
    assert trainer.state.best == 4.0
    assert trainer.state.best_epoch == 7


def test_the_learning_rate_that_is_shown_is_the_one_in_use(tmp_path):
    settings = config(train__epochs=4, train__lr_decay=2, data__train_size=8)
    trainer = trainer_of(settings, tmp_path / "run")
    trainer.fit()
    rates = [line["lr"] for line in trainer.run.metrics() if line["kind"] == "epoch"]
    assert rates == pytest.approx([settings.train.lr * share for share in (1, 1, 0.5, 0)])


def test_a_step_has_the_rate_of_its_beginning(tmp_path):
    """Else the last step of a cosine would have rate 0 and do nothing."""
    settings = config(train__epochs=2, train__lr_decay=2, data__train_size=16)  # 2 steps an epoch
    trainer = trainer_of(settings, tmp_path / "run")
    used, step = [], trainer.optimizer.step
    trainer.optimizer.step = lambda: (used.append(trainer.optimizer.param_groups[0]["lr"]), step())  # type: ignore
    trainer.fit()
    wanted = [settings.train.lr * (0.5 + 0.5 * math.cos(math.pi * k / 4)) for k in range(4)]
    assert used == pytest.approx(wanted)
    assert [line["lr"] for line in trainer.run.metrics() if line["kind"] == "step"] == pytest.approx(wanted)


def test_early_stop(tmp_path, monkeypatch, capsys):
    settings = config(train__epochs=50, train__early_stop=3, train__kl_steps=(0, 0), data__train_size=8)
    trainer = trainer_of(settings, tmp_path / "run")
    real = trainer.validate()
    trainer.reporter.quiet = False
    elbos = iter([5.0, 4.0, 4.1, 4.2, 4.3, 1.0])
    monkeypatch.setattr(
        trainer, "validate", lambda: type(real)(**{**vars(real), "negative_elbo": next(elbos)})
    )
    assert trainer.fit()
    assert trainer.state.epoch == 5
    said = capsys.readouterr().out
    assert "up to 50 epochs, until 3 in a row are no better" in said
    assert "stopped after epoch 5: the last 3 were no better" in said


def poisoned(trainer: Trainer, steps: set[int], monkeypatch) -> None:
    """The loss of these steps is NaN."""
    real = trainer.model.terms

    def terms(batch, samples=1, **options):
        found = real(batch, samples, **options)
        if trainer.state.updates in steps:
            return type(found)(found.log_emission * math.nan, found.kl, found.log_length)
        return found

    monkeypatch.setattr(trainer.model, "terms", terms)
    monkeypatch.setattr(
        trainer, "validate", lambda: evaluate(trainer.model, trainer.corpus.splits["test"], samples=1)
    )


def test_a_step_that_is_not_finite_is_skipped_counted_and_reported(tmp_path, monkeypatch, capsys):
    settings = config("hmm-lstm", train__epochs=1)
    trainer = trainer_of(settings, tmp_path / "run")
    trainer.reporter = Reporter()
    poisoned(trainer, {3, 5}, monkeypatch)
    assert trainer.fit()
    assert math.isfinite(trainer.reporter.mean)
    assert trainer.state.bad_steps == 2
    assert trainer.state.bad_in_row == 0
    assert all(p.isfinite().all() for p in trainer.parameters)
    assert [line["updates"] for line in trainer.run.metrics() if line["kind"] == "skipped"] == [4, 6]
    assert capsys.readouterr().err.count("not finite, step skipped") == 2


def test_many_bad_steps_in_a_row_stop_the_run(tmp_path, monkeypatch):
    settings = config("hmm-lstm", train__max_bad_steps=3, train__epochs=2)
    trainer = trainer_of(settings, tmp_path / "run")
    poisoned(trainer, {1, 3, 4, 5}, monkeypatch)
    with pytest.raises(
        LatflowError, match=r"3 steps in a row.*epoch 1, batch 6.*train\.lr.*latflow train --config"
    ):
        trainer.fit()


def test_no_checkpoint_is_made_between_bad_steps(tmp_path, monkeypatch):
    settings = config("hmm-lstm", train__max_bad_steps=3, train__epochs=2, train__checkpoint_minutes=0)
    trainer = trainer_of(settings, tmp_path / "run")
    poisoned(trainer, {3, 4, 5}, monkeypatch)
    with pytest.raises(LatflowError, match=r"train\.clip, now 1\)"):
        trainer.fit()
    assert trainer.run.read(TRAINER)[1]["updates"] == 3


def test_a_mean_of_weights_that_begins_on_resuming_begins_there(tmp_path):
    settings = config("hmm-lstm", train__epochs=1)
    run, _ = train(settings, tmp_path / "run")
    changed = evolve(settings, {"train.ema": 0.5, "train.epochs": 2})
    (run.folder / "config.json").write_text(json.dumps(to_dict(changed)))
    trainer = Trainer(Run.open(run.folder), data.load(settings.data), World(), Reporter(quiet=True))
    assert trainer.ema is not None
    for name, value in weights_of(trainer.model).items():
        assert torch.equal(trainer.ema[name], value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 2.0}, r"train\.epochs is 2\.0; it must be a whole number"),
        ({"optimizer": "adamw"}, r"train\.optimizer is 'adamw'; accepted: adam, sgd"),
    ],
)
def test_a_config_of_wrong_types_leaves_no_folder(tmp_path, change, message):
    settings = config()
    wrong = replace(settings, train=replace(settings.train, **change))
    with pytest.raises(LatflowError, match=message):
        train(wrong, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "change",
    [{"train.ema": 1.0}, {"train.lr": math.inf}, {"model.prior.scalar.raw_scale": (math.nan, 1.0, 1.0)}],
)
def test_numbers_that_spoil_a_run_are_refused(change):
    (name,) = change
    with pytest.raises(LatflowError, match=f"{name} is"):
        config(**{name.replace(".", "__"): change[name]})


def test_a_run_without_a_finite_epoch_does_not_end_well(tmp_path, monkeypatch):
    trainer = trainer_of(config("hmm-lstm", train__epochs=1), tmp_path / "run")
    real = trainer.validate()
    monkeypatch.setattr(trainer, "validate", lambda: type(real)(**{**vars(real), "negative_elbo": math.nan}))
    with pytest.raises(LatflowError, match=r"no epoch of .*run has a finite -ELBO.*a lower train\.lr"):
        trainer.fit()


@pytest.mark.parametrize(("steps", "told"), [((10, 20), True), ((4, 8), False)])
def test_a_run_too_short_for_its_warm_up_is_told(tmp_path, capsys, steps, told):
    trainer_of(config(train__kl_steps=steps), tmp_path / "run").fit()  # 24 steps
    assert ("the KL weight comes to 0.70 only in these 24 steps" in capsys.readouterr().err) == told


def test_a_collapsed_posterior_is_told(tmp_path, monkeypatch, capsys):
    settings = config(train__epochs=1, train__kl_steps=(0, 0))
    trainer = trainer_of(settings, tmp_path / "run")
    real = trainer.validate()
    monkeypatch.setattr(trainer, "validate", lambda: type(real)(**{**vars(real), "kl": 0.001}))
    trainer.fit()
    assert "posterior has collapsed" in capsys.readouterr().err
    assert trainer.run.metrics()[-1]["collapsed"]


def test_ema_is_the_running_mean_and_what_is_kept(tmp_path):
    """Decay d, or (1 + n) / (10 + n) at step n while that is less: a short run does not keep its start."""
    settings = config("hmm-lstm", train__ema=0.5, train__epochs=1, data__train_size=16)
    trainer = trainer_of(settings, tmp_path / "run")
    name = "alphabet.embedding"
    weights = [dict(trainer.model.named_parameters())[name].detach().clone()]
    for batch in trainer.batches.epoch(0):
        trainer._update([batch])
        weights.append(dict(trainer.model.named_parameters())[name].detach().clone())
    assert trainer.ema is not None
    first, second = 2 / 11, 3 / 12
    mean = second * (first * weights[0] + (1 - first) * weights[1]) + (1 - second) * weights[2]
    torch.testing.assert_close(trainer.ema[name], mean)
    before = trainer.ema[name].clone()
    trainer.state.updates = 100
    trainer._average()
    torch.testing.assert_close(trainer.ema[name], 0.5 * before + 0.5 * weights[2])
    trainer._end_epoch()
    assert torch.equal(trainer.run.read("model.safetensors")[0][name], trainer.ema[name])
    assert torch.equal(dict(trainer.model.named_parameters())[name], weights[-1])


def test_the_same_seed_gives_the_same_run_and_another_does_not(tmp_path):
    curves = []
    for i, seed in enumerate((0, 0, 1)):
        run, _ = train(config(seed=seed, train__epochs=1), tmp_path / str(i))
        curves.append([line["loss"] for line in run.metrics() if line["kind"] == "step"])
    assert curves[0] == curves[1] != curves[2]


def test_training_learns_and_never_beats_the_truth(tmp_path):
    """A baseline of 24 units on the hidden-Markov set: within 0.2 bits of the truth, not below by chance's share."""
    settings = config(
        "hmm-lstm", model__baseline__units=24, model__embedding_size=12, data__train_size=1000, data__eval_size=200,
        train__epochs=6, train__batch_size=20, train__lr=0.02, train__kl_steps=(0, 0), train__lr_decay=3,
    )  # fmt: skip
    run, _ = train(settings, tmp_path / "run")
    corpus = data.load(settings.data)
    assert corpus.truth is not None
    found = evaluate(run.model(), corpus.splits["test"], truth=corpus.truth["test"]).truth
    assert found is not None
    assert -1.96 * found.gap_error < found.gap < 0.2


@pytest.mark.parametrize("quiet", [True, False])
def test_tensorboard(tmp_path, quiet):
    pytest.importorskip("tensorboard")
    settings = config("hmm-lstm", train__epochs=1, train__tensorboard=True)
    run, _ = train(settings, tmp_path / "run", reporter=Reporter(quiet))
    assert list((run.folder / "tensorboard").glob("events*"))
