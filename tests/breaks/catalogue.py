"""The list. Each entry: a name, then what becomes of what in which function. Grouped by file, with the tests for it."""

from __future__ import annotations

from collections.abc import Iterable

from tests.breaks.patch import Break

TRAINING = "tests/walks/test_training_walk.py"
USE = "tests/walks/test_use_walk.py"
DRAWS = "tests/walks/test_dropout_and_draws.py"


def _of(file: str, tests: str | tuple[str, ...], entries: Iterable[tuple[str, str, str, str]]) -> list[Break]:
    chosen = (tests,) if isinstance(tests, str) else tests
    return [Break(name, file, where, old, new, chosen) for name, where, old, new in entries]


BREAKS: list[Break] = [
    # training
    *_of(
        "latflow/training/loop.py",
        TRAINING,
        [
            ("validation-reads-test", "Trainer.validate", 'splits["valid"]', 'splits["test"]'),
            ("validation-reads-train", "Trainer.validate", 'splits["valid"]', 'splits["train"]'),
            ("validation-one-sample", "Trainer.validate", "samples=c.eval_samples", "samples=1"),
            ("validation-batch", "Trainer.validate", "batch_size=c.eval_batch", "batch_size=32"),
            ("validation-seed", "Trainer.validate", "seed=self.run.config.seed", "seed=0"),
            ("kl-weight-squared", "Trainer.gradient", "terms.elbo(weight)", "terms.elbo(weight * weight)"),
            ("kl-weight-one", "Trainer.gradient", "terms.elbo(weight)", "terms.elbo()"),
            ("train-samples-ignored", "Trainer.gradient", "self.config.samples", "1"),
            ("loss-not-per-step", "Trainer.gradient", "terms.elbo(weight) / steps", "terms.elbo(weight)"),
            ("steps-without-end", "Trainer.gradient", "batch.lengths + 1", "batch.lengths"),
            ("same-noise-every-epoch", "Trainer.gradient", "Stream.TRAINING, epoch,", "Stream.TRAINING, 0,"),
            ("same-noise-every-batch", "Trainer.gradient", "epoch, number,", "epoch, 0,"),
            ("gradient-is-a-sum", "Trainer.gradient", "p.grad /= sums.sequences", "p.grad /= 1"),
            ("gradient-per-batch", "Trainer.gradient", "p.grad /= sums.sequences", "p.grad /= len(group)"),
            ("clip-ignored", "Trainer._update", "c.clip or math.inf", "math.inf"),
            ("clip-doubled", "Trainer._update", "c.clip or math.inf", "2 * c.clip"),
            ("lr-not-set", "Trainer._update", 'settings["lr"] = lr', 'settings["lr"] = c.lr'),
            ("weight-late", "Trainer._update", "kl_weight(c, s.updates,", "kl_weight(c, s.updates + 1,"),
            ("no-average", "Trainer._update", "            self._average()\n", ""),
            ("gradients-kept", "Trainer._update", "self.optimizer.zero_grad(set_to_none=True)", "pass"),
            ("lines-not-emptied", "Trainer._update", "s.line_sums = Sums()", "pass"),
            ("ema-swapped", "Trainer._average", "lerp_(now, 1 - decay)", "lerp_(now, decay)"),
            (
                "ema-no-warmup",
                "Trainer._average",
                "min(self.config.ema, (1 + n) / (10 + n))",
                "self.config.ema",
            ),
            ("valid-without-ema", "Trainer._averaged", "self.ema is None", "True"),
            (
                "ema-stays",
                "Trainer._averaged",
                "finally:\n            set_weights(self.model, now,",
                "finally:\n            set_weights(self.model, self.ema,",
            ),
            (
                "worst-kept",
                "Trainer._end_epoch",
                "metrics.negative_elbo < s.best",
                "not metrics.negative_elbo < s.best",
            ),
            ("always-kept", "Trainer._end_epoch", "            if better:\n", "            if True:\n"),
            ("cosine-per-epoch", "Trainer.lr", "s.epoch + s.batch / len(self.batches)", "s.epoch"),
            ("cosine-left-out", "Trainer.lr", "s.lr * cosine(", "s.lr + 0 * cosine("),
            ("order-not-seeded", "Trainer.__init__", "            seed=c.seed,\n", ""),
            (
                "weights-not-seeded",
                "Trainer.__init__",
                "seeded(c.seed, Stream.WEIGHTS)",
                "seeded(0, Stream.WEIGHTS)",
            ),
            (
                "figures-in-nats",
                "Trainer.train_figures",
                "in_unit(value, self.corpus.spec) / sums.steps",
                "value / sums.steps",
            ),
            ("figures-per-sequence", "Trainer.train_figures", "/ sums.steps for", "/ sums.sequences for"),
            ("filler-counts", "Trainer.gradient", "-(batch.weight * terms", "-(2 * terms"),
        ],
    ),
    *_of(
        "latflow/training/loop.py",
        "tests/training/test_loop.py",
        [
            ("plateau-at-once", "Trainer._end_epoch", "s.stale >= c.patience", "s.stale >= 1"),
            ("plateau-before-weight-one", "Trainer._end_epoch", "better or weight < 1", "better"),
            ("lr-factor-ignored", "Trainer._end_epoch", "s.lr * c.lr_factor", "s.lr"),
            ("early-stop-ignored", "Trainer.fit", "c.early_stop and s.idle >= c.early_stop", "False"),
            (
                "bad-steps-taken",
                "Trainer._update",
                "math.isfinite(sums.loss) and bool(norm.isfinite())",
                "True",
            ),
            ("bad-steps-forever", "Trainer._skip", "s.bad_in_row >= c.max_bad_steps", "False"),
            ("checkpoint-between-bad", "Trainer.fit", " and not s.bad_in_row", ""),
        ],
    ),
    *_of(
        "latflow/training/loop.py",
        DRAWS,
        [
            ("trained-in-eval-mode", "Trainer.fit", "self.model.train()", "self.model.eval()"),
        ],
    ),
    *_of(
        "latflow/training/loop.py",
        "tests/training/test_resume.py",
        [
            (
                "resume-forgets-moments",
                "Trainer._restore",
                'set_optimizer(self.optimizer, below("optimizer.", tensors))',
                "pass",
            ),
            ("resume-forgets-place", "Trainer.fit", "start=s.batch", "start=0"),
            (
                "resume-forgets-ema",
                "Trainer._restore",
                'below("ema.", tensors) or weights_of(self.model)',
                "weights_of(self.model)",
            ),
        ],
    ),
    *_of(
        "latflow/training/optimize.py",
        (TRAINING, "tests/training/test_loop.py"),
        [
            ("ramp-begins-at-once", "kl_weight", "(updates - zero) / ramp", "updates / ramp"),
            ("ramp-beyond-one", "kl_weight", "min(1.0, max(", "(max("),
            ("kl-steps-ignored", "kl_weight", "zero, ramp = config.kl_steps", "zero, ramp = 0, 1"),
            ("kl-epochs-as-steps", "kl_weight", "config.kl_zero * updates_per_epoch", "config.kl_zero"),
            ("cosine-rises", "cosine", "0.5 - 0.5 *", "0.5 + 0.5 *"),
            ("cosine-all-epochs", "cosine", "min(config.lr_decay, config.epochs)", "config.epochs"),
            ("sgd-is-adam", "make_optimizer", 'config.optimizer == "adam"', "True"),
            ("adam-is-sgd", "make_optimizer", 'config.optimizer == "adam"', "False"),
        ],
    ),
    *_of(
        "latflow/training/seeds.py",
        (TRAINING, USE),
        [
            ("seed-ignored", "seeded", "(seed, int(stream), *place)", "(0, int(stream), *place)"),
            ("stream-ignored", "seeded", "(seed, int(stream), *place)", "(seed, 0, *place)"),
            ("place-ignored", "seeded", "(seed, int(stream), *place)", "(seed, int(stream))"),
            ("streams-renumbered", "Stream", "SAMPLING = 3", "SAMPLING = 9"),
        ],
    ),
    *_of(
        "latflow/training/evaluate.py",
        USE,
        [
            ("evaluate-in-nats", "", '"bits": math.log(2)', '"bits": 1.0'),
            ("evaluate-music-in-bits", "", '"nats": 1.0', '"nats": math.log(2)'),
            (
                "kl-by-chunk",
                "_rows",
                "terms.total_kl.double() * (part / samples)",
                "terms.total_kl.double() * (1 / samples)",
            ),
            (
                "reconstruction-by-chunk",
                "_rows",
                "terms.reconstruction.double() * (part / samples)",
                "terms.reconstruction.double()",
            ),
            ("kl-of-last-chunk", "_rows", "kl = kl + terms", "kl = terms"),
            (
                "length-left-out",
                "summarize",
                "nll = given_length[samples] + length",
                "nll = given_length[samples]",
            ),
            ("nll-at-without-length", "summarize", "per_step(nats + length)", "per_step(nats)"),
            (
                "elbo-without-length",
                "summarize",
                "per_step(reconstruction + kl + length)",
                "per_step(reconstruction + kl)",
            ),
            ("steps-without-one", "summarize", "count = lengths + 1", "count = lengths"),
            ("first-k", "summarize", "samples = max(given_length)", "samples = min(given_length)"),
            ("error-of-n", "error_of", "n / (n - 1)", "1.0"),
            (
                "error-of-a-sum",
                "error_of",
                "residual = nats - nats.sum() / count.sum() * count",
                "residual = nats - nats.mean()",
            ),
            (
                "error-in-nats",
                "summarize",
                "nll_error=error_of(nll, count) / unit",
                "nll_error=error_of(nll, count)",
            ),
            (
                "effective-sum",
                "summarize",
                "effective_samples.numpy().mean()",
                "effective_samples.numpy().sum()",
            ),
            ("evaluate-seed", "nats_of", "seeded(seed,", "seeded(0,"),
            ("evaluate-same-noise", "nats_of", "Stream.EVALUATION, which", "Stream.EVALUATION, 0"),
            ("rows-out-of-order", "nats_of", "rows.put(batch.index,", "rows.put(batch.index.flip(0),"),
            ("evaluate-batch-size", "nats_of", "Batches(sequences, batch_size,", "Batches(sequences, 32,"),
            ("ladder-misses", "_ladder", "for base in (1, 2, 5)", "for base in (1, 5)"),
        ],
    ),
    *_of(
        "latflow/training/evaluate.py",
        ("tests/training/test_evaluate.py", "tests/use/test_use.py"),
        [
            (
                "gap-swapped",
                "summarize",
                "gap = given_length[samples] - truth",
                "gap = truth - given_length[samples]",
            ),
            ("evaluated-with-dropout", "evaluating", "    model.eval()\n", ""),
            ("mode-not-restored", "evaluating", "module.training = training", "module.training = False"),
            ("chunks-grow", "chunk_of", "CHUNK //", "1000 * CHUNK //"),
        ],
    ),
    *_of(
        "latflow/training/run.py",
        USE,
        [
            ("last-is-best", "Run.model", 'self.kept(which) == "best"', "True"),
            ("best-is-last", "Run.model", 'self.kept(which) == "best"', "False"),
        ],
    ),
    *_of(
        "latflow/training/run.py",
        "tests/training/test_run.py",
        [
            ("checksum-ignored", "Run.read", "if not whole:", "if False:"),
            ("infinite-weights", "Run.model", "if not tensor.isfinite().all():", "if False:"),
        ],
    ),
    *_of(
        "latflow/training/run.py",
        "tests/training/test_resume.py",
        [("other-data-accepted", "Run.check_data", "if what:", "if False:")],
    ),
    *_of(
        "latflow/training/distributed.py",
        "tests/training/test_distributed.py",
        [
            ("gradients-not-summed", "World.sum_gradients", "dist.all_reduce(flat)", "pass"),
            ("sums-of-one-process", "World.sum", "dist.all_reduce(total)", "pass"),
        ],
    ),
    # use
    *_of(
        "latflow/use/score.py",
        USE,
        [
            ("score-first-chunk", "_Weights._draw", "new if total is None else total + new", "new"),
            ("score-last-steps", "_Weights._draw", "ends[i + 1]] += steps", "ends[i + 1]] = steps"),
            ("score-steps-summed", "_Weights.rows", "ends[i + 1]] / K", "ends[i + 1]] / 1"),
            ("score-samples-ignored", "_goals", "return [most]", "return [1]"),
            ("score-seed", "_keyed", "{seed} {first}", "0 {first}"),
            ("score-same-noise", "_keyed", "{seed} {first}", "{seed} 0"),
            (
                "score-sign",
                "_Weights._draw",
                "(terms.kl - terms.log_emission)",
                "(terms.kl + terms.log_emission)",
            ),
            ("score-in-nats", "_Weights.rows", "weights.nll() / unit", "weights.nll()"),
            ("score-error-in-nats", "_Weights.rows", "_error(weights) / unit", "_error(weights)"),
            ("score-error-of-few", "_error", "known[-1] if known else 1.0", "1.0"),
            ("score-per-T", "_together_with", "/ (T + 1)", "/ T"),
        ],
    ),
    *_of(
        "latflow/use/sample.py",
        USE,
        [
            (
                "sample-temperature",
                "sampled",
                "model.sample(part, temperature, argmax,",
                "model.sample(part, 1.0, argmax,",
            ),
            ("sample-argmax", "sampled", "temperature, argmax, label", "temperature, False, label"),
            ("sample-seed", "sampled", "Numbers(seed,", "Numbers(0,"),
            (
                "sample-length",
                "sampled",
                "model.length.sample(many) if length is None else lengths",
                "model.length.sample(many)",
            ),
            ("sample-not-cut", "sampled", "one[:T]", "one"),
        ],
    ),
    *_of(
        "latflow/use/sample.py",
        "tests/use/test_use.py",
        [
            (
                "sample-with-dropout",
                "sampled",
                "with evaluating(model), numbers",
                "with torch.no_grad(), numbers",
            )
        ],
    ),
    *_of(
        "latflow/use/export.py",
        "tests/test_shipped.py",
        [
            ("export-paths", "portable", '"data.name": name', '"data.name": config.data.name'),
            ("export-half-always", "save", "if half else", "if True else"),
        ],
    ),
    *_of(
        "latflow/training/start.py",
        "tests/training/test_start.py",
        [
            ("start-rows-by-number", "_by_name", "old[at[name]]", "old[i % len(old)]"),
            (
                "start-positions-fresh",
                "Start.weights",
                "torch.cat([old[: len(value)], last])",
                "value.clone()",
            ),
            ("start-codes-at-one-place", "_codes", "corners[best]\n", "corners[0]\n"),
            ("start-with-a-warm-up", "Start.config", '"train.kl_zero": 0.0', '"train.kl_zero": 5.0'),
        ],
    ),
    *_of(
        "latflow/training/loop.py",
        "tests/training/test_start.py",
        [("start-forgotten", "Trainer.__init__", "if run.has(START):", "if False:")],
    ),
    *_of(
        "latflow/use/compare.py",
        "tests/cli/test_compare.py",
        [
            ("compare-unpaired", "compare", "error_of(total - first,", "error_of(total,"),
            ("compare-other-data", "_check_same", "raise LatflowError(", "LatflowError("),
            ("compare-split", "compare", "corpus.splits[split]", 'corpus.splits["test"]'),
        ],
    ),
    # models
    *_of(
        "latflow/models/base.py",
        (USE, TRAINING),
        [
            ("elbo-kl-sign", "Terms.elbo", "- kl_weight * self.total_kl", "+ kl_weight * self.total_kl"),
            (
                "elbo-without-length-term",
                "Terms.elbo",
                "self.log_length - self.reconstruction",
                "-self.reconstruction",
            ),
            ("kl-summed-over-samples", "Terms.total_kl", ".mean(-1)", ".sum(-1)"),
            (
                "weights-kl-sign",
                "Terms.log_weights",
                "self.log_emission - self.kl",
                "self.log_emission + self.kl",
            ),
            ("nll-not-a-mean", "Importance.nll", "math.log(self.samples) - ", "-"),
            ("effective-of-sum", "Importance.effective_samples", "2 * self.log_sum - ", "self.log_sum - "),
            ("samples-not-added", "Importance.__add__", "self.samples + other.samples", "self.samples"),
            ("draws-beyond-marks", "SequenceModel.draws", "min(chunk, mark - done)", "chunk"),
        ],
    ),
    *_of(
        "latflow/models/baseline.py",
        USE,
        [
            ("baseline-argmax", "LSTMLanguageModel.noise", "argmax or temperature == 0", "temperature == 0"),
            (
                "baseline-temperature",
                "LSTMLanguageModel.noise",
                "temperature * self.alphabet",
                "self.alphabet",
            ),
        ],
    ),
    *_of(
        "latflow/models/baseline.py",
        DRAWS,
        [
            (
                "baseline-input-dropout",
                "LSTMLanguageModel._terms",
                "F.dropout(self.alphabet.embed(rows), self.dropout, self.training)",
                "self.alphabet.embed(rows)",
            )
        ],
    ),
    *_of(
        "latflow/models/latent.py",
        USE,
        [
            (
                "latent-temperature",
                "LatentSequenceModel._sample",
                "packing, temperature, generator",
                "packing, 1.0, generator",
            ),
            (
                "latent-argmax",
                "LatentSequenceModel._sample",
                "packing, argmax, generator",
                "packing, False, generator",
            ),
        ],
    ),
    *_of(
        "latflow/models/latent.py",
        TRAINING,
        [
            (
                "kl-of-p-and-q",
                "LatentSequenceModel._terms",
                "draw.log_q - draw.log_p",
                "draw.log_p - draw.log_q",
            ),
            (
                "samples-out-of-order",
                "LatentSequenceModel.draw",
                "x.repeat_interleave(samples, 0)",
                "x.repeat(samples)",
            ),
        ],
    ),
    *_of(
        "latflow/models/symbols.py",
        DRAWS,
        [
            ("bernoulli-noise-doubled", "Bernoulli.noise", "torch.logit(u)", "2 * torch.logit(u)"),
            ("bernoulli-noise-normal", "Bernoulli.noise", "torch.rand(", "torch.randn("),
            ("gumbel-halved", "Categorical.noise", "-self.bias", "-0.5 * self.bias"),
        ],
    ),
    *_of(
        "latflow/models/symbols.py",
        USE,
        [("alphabet-argmax", "Alphabet.sample", "scores if argmax else", "scores if False else")],
    ),
    *_of(
        "latflow/models/parts.py",
        TRAINING,
        [
            (
                "posterior-variance",
                "GaussianPosterior.rsample",
                "mean + log_std.exp() * noise",
                "mean + (2 * log_std).exp() * noise",
            ),
            (
                "posterior-density",
                "GaussianPosterior.rsample",
                "0.5 * noise.square() + log_std",
                "0.5 * noise.square() - log_std",
            ),
            ("posterior-constant", "GaussianPosterior.rsample", "math.log(2 * math.pi)", "math.log(math.pi)"),
        ],
    ),
    *_of(
        "latflow/models/posterior/bilstm.py",
        TRAINING,
        [("posterior-scale", "BiLSTMPosterior.forward", "0.5 * log_variance", "log_variance")],
    ),
    *_of(
        "latflow/models/posterior/bilstm.py",
        DRAWS,
        [
            (
                "posterior-dropout",
                "BiLSTMPosterior.forward",
                "F.dropout(hidden, self.dropout, self.training)",
                "hidden",
            )
        ],
    ),
    *_of(
        "latflow/models/emission/bilstm.py",
        DRAWS,
        [
            (
                "emission-dropout",
                "BiLSTMEmission.scores",
                "F.dropout(hidden, self.dropout, self.training)",
                "hidden",
            )
        ],
    ),
    *_of(
        "latflow/models/emission/bilstm.py",
        TRAINING,
        [
            ("emission-sees-its-state", "BiLSTMEmission.head_scores", "packing.before(past)", "past"),
            (
                "emission-future",
                "BiLSTMEmission.head_scores",
                "packing.after(future)",
                "packing.before(future)",
            ),
        ],
    ),
    *_of(
        "latflow/models/codes.py",
        "tests/models/test_codebook.py",
        [
            ("codes-sigma", "Codes.__init__", "math.log(sigma)", "sigma"),
            ("codes-learned", "Codes.__init__", "if learned:", "if True:"),
            (
                "codes-density",
                "Codes.log_likelihoods",
                "+ self.log_scales.sum(-1)",
                "- self.log_scales.sum(-1)",
            ),
            ("codes-counts", "log_odds", "counts / counts.sum()", "counts * 0 + 1"),
        ],
    ),
    *_of(
        "latflow/models/length.py",
        (USE, "tests/models/test_models.py"),
        [
            ("lengths-uniform", "LengthModel.sample", "self.log_p.exp()", "(self.log_p.exp() > 0).double()"),
            (
                "length-off-by-one",
                "LengthModel.log_prob",
                "self.log_p[lengths.clamp(0, self.max_T)]",
                "self.log_p[(lengths + 1).clamp(0, self.max_T)]",
            ),
        ],
    ),
    *_of(
        "latflow/models/condition.py",
        "tests/models/test_condition.py",
        [
            ("shift-ignored", "Condition.forward", "(zero if shift is None else shift)", "zero"),
            (
                "label-ignored",
                "Condition.forward",
                "torch.where((label < 0)[:, None], mean, self.label[label])",
                "mean",
            ),
        ],
    ),
    # flows
    *_of(
        "latflow/flows/scalar.py",
        (TRAINING, "tests/flows/test_scalar.py"),
        [
            ("nlsq-slope-sign", "_log_relative_slope", "-2 * kappa", "2 * kappa"),
            ("nlsq-bound", "NLSq.kappa_bound", "8 * math.sqrt(3) / 9", "9 * math.sqrt(3) / 9"),
            ("nlsq-no-b-over-d", "NLSq.inverse", "(b / d) * (kappa * r)", "(kappa * r)"),
            ("nlsq-scale-b", "NLSq._parameters", "scale_b * b", "b"),
            ("nlsq-scale-d", "NLSq._parameters", "scale_d * d", "d"),
            ("nlsq-alpha", "NLSq.kappa_bound", "* self.alpha", "* 0.5"),
            ("affine-scale", "Affine._parameters", "self.scale * log_b", "log_b"),
            ("affine-logdet", "Affine.inverse", ", -log_b", ", log_b"),
        ],
    ),
    *_of(
        "latflow/flows/hidden.py",
        (TRAINING, "tests/flows/test_hidden.py"),
        [
            ("no-reversal", "HiddenFlow.__init__", "self._network(layer % 2 == 1,", "self._network(False,"),
            ("skip-ignored", "HiddenFlow.raw", "raw if share.raw is None else", "raw if True else"),
            ("inverse-order", "HiddenFlow._through", "reversed(range(self.layers))", "range(self.layers)"),
            (
                "halves-swapped",
                "SplitCoupling.dimensions",
                "(last, first) if reverse else (first, last)",
                "(first, last)",
            ),
        ],
    ),
    *_of(
        "latflow/flows/hidden.py",
        DRAWS,
        [("network-dropout", "HiddenFlow.__init__", "network.dropout = dropout", "network.dropout = 0.0")],
    ),
    *_of(
        "latflow/flows/network.py",
        (TRAINING, "tests/flows/test_hidden.py"),
        [
            (
                "mask-sees-itself",
                "MADE.__init__",
                "hidden[:, None] > rank[None, :]",
                "hidden[:, None] >= rank[None, :]",
            ),
            (
                "mask-sees-less",
                "MADE.__init__",
                "rank[:, None] >= hidden[None, :]",
                "rank[:, None] > hidden[None, :]",
            ),
            ("mask-left-out", "MADE.weights", 'matrix * self.get_buffer(f"mask{layer}")', "matrix"),
            ("mask-direction", "MADE.__init__", "rank.flip(0) if reverse else rank", "rank"),
            ("no-relu", "Conditioner.forward", "F.relu(y)", "y"),
        ],
    ),
    *_of(
        "latflow/flows/context.py",
        DRAWS,
        [
            (
                "context-dropout",
                "LSTMContext._drop",
                "F.dropout(context, self.dropout, self.training)",
                "context",
            ),
            (
                "context-input-dropout",
                "LSTMContext._drop_input",
                "F.dropout(read, self.input_dropout, self.training) if self.input_dropout else read",
                "read",
            ),
            ("context-dropout-not-given", "LSTMContext.__init__", "layers, dropout=dropout)", "layers)"),
        ],
    ),
    *_of(
        "latflow/flows/context.py",
        TRAINING,
        [
            (
                "context-sees-now",
                "LSTMContext.whole",
                "packing.before(self.lstm(read, packing, features, start), first=start[-1][0])",
                "self.lstm(read, packing, features, start)",
            ),
            (
                "context-position-of-now",
                "LSTMContext.whole",
                "places.step + (places.remaining > 0)",
                "places.step",
            ),
            (
                "start-not-rectified",
                "LSTMContext._initial",
                "F.relu(self.start_positions(places.step[first], places.remaining[first]))",
                "self.start_positions(places.step[first], places.remaining[first])",
            ),
            (
                "start-h-and-c",
                "LSTMContext._initial",
                "(parts[2 * layer].contiguous(), parts[2 * layer + 1].contiguous())",
                "(parts[2 * layer + 1].contiguous(), parts[2 * layer].contiguous())",
            ),
        ],
    ),
    *_of(
        "latflow/flows/recurrent.py",
        DRAWS,
        [("lstm-dropout-whole", "LSTM.forward", "x = F.dropout(x, self.dropout, self.training)", "pass")],
    ),
    *_of(
        "latflow/flows/recurrent.py",
        TRAINING,
        [
            ("cell-forget", "lstm_cell", "f.sigmoid() * c", "c"),
            ("cell-output", "lstm_cell", "o.sigmoid() * c.tanh()", "o.sigmoid() * c"),
            ("backward-forwards", "LSTM.whole", "backwards=direction == 1", "backwards=False"),
            ("features-in-all-layers", "LSTM.forward", "features if layer == 0 else None", "features"),
        ],
    ),
    *_of(
        "latflow/flows/positions.py",
        TRAINING,
        [("position-end", "Positions.forward", "start + end", "start - end")],
    ),
    *_of(
        "latflow/flows/sequence.py",
        ("tests/flows/test_sequence.py", USE),
        [
            ("flow-temperature", "SequenceFlow.sample_rows", "temperature * eps", "eps"),
            (
                "iaf-sees-z",
                "InverseAutoregressiveTime.inverse",
                'flow.serial("inverse", z, packing)',
                "flow.hidden.inverse(z, flow.contexts(z, packing))",
            ),
        ],
    ),
    *_of(
        "latflow/flows/mixture.py",
        "tests/flows/test_mixture.py",
        [
            (
                "mixture-density",
                "mixture_log_prob",
                "- 0.5 * x.square() - log_scales",
                "- 0.5 * x.square() + log_scales",
            ),
            ("mixture-weights", "mixture_log_prob", "logits.log_softmax(-1)", "logits"),
        ],
    ),
    *_of(
        "latflow/flows/tied.py",
        "tests/flows/test_tied.py",
        [
            (
                "tied-weights-carried",
                "TiedMixture._walk",
                "logits - 0.5 * x.square() - log_scale",
                "logits - 0.5 * x.square()",
            ),
            ("tied-order", "TiedMixture.log_prob", "0.5 * x.square()", "x.square()"),
        ],
    ),
    # fast
    *_of(
        "latflow/fast/layers.py",
        "tests/fast/test_twins.py",
        [
            (
                "fast-layer-sign",
                "_Density.backward",
                "grad[:, layer.seen] += below",
                "grad[:, layer.seen] -= below",
            )
        ],
    ),
    *_of(
        "latflow/fast/sequences.py",
        (USE, "tests/models/test_sampling_paths.py"),
        [
            ("fast-baseline-noise", "tabulated_sample", " + noise[packing.at(t)]", ""),
            (
                "fast-baseline-bias",
                "tabulated_sample",
                "alphabet.look_up(x[:n], gates) + lstm.bias[0]",
                "alphabet.look_up(x[:n], gates)",
            ),
        ],
    ),
    *_of(
        "latflow/fast/sequences.py",
        "tests/fast/test_registry.py::test_twins_give_the_numbers_of_their_definition[BiLSTMEmission.head_scores]",
        [("fast-head-scale", "multiplied_out", "own / emission.scale", "own")],
    ),
    *_of(
        "latflow/fast/hidden.py",
        ("tests/fast/test_twins.py", "tests/fast/test_registry.py"),
        [
            (
                "fast-incremental-skip",
                "incremental_layer",
                "raw if share.raw is None else",
                "raw if True else",
            ),
            ("fast-incremental-reverse", "incremental_layer", "0 if reverse else rank", "rank"),
            (
                "fast-map-constants",
                "",
                "(scalar.kappa_bound, *scalar.scale)",
                "(scalar.kappa_bound, 1.0, 1.0, 1.0)",
            ),
        ],
    ),
    *_of(
        "latflow/fast/linear.py",
        "tests/fast/test_twins.py",
        [
            ("fast-tape-bias", "_total", "bias + total", "bias"),
            ("fast-tape-kept", "_Tape.take", "self.inputs, self.grads = [], []", "pass"),
        ],
    ),
    *_of(
        "latflow/fast/kernels/lstm.py",
        "tests/fast/test_twins.py",
        [
            ("kernel-cell", "lstm_cell", "f[k] * c_row[k] + i[k] * g[k]", "f[k] * c_row[k] + g[k]"),
            ("kernel-cell-gradient", "lstm_rows_backward", "dc[k] *= f[k]", "dc[k] *= one"),
        ],
    ),
    *_of(
        "latflow/fast/kernels/layers.py",
        "tests/fast/test_twins.py",
        [
            ("kernel-density", "nlsq_density", "logdet[row] += log_b + ", "logdet[row] += "),
            ("kernel-gradient", "nlsq_density_gradient", "(4 * r - 3)", "(4 * r + 3)"),
        ],
    ),
    # data
    *_of(
        "latflow/data/synthetic.py",
        (DRAWS, "tests/data/test_synthetic.py"),
        [
            (
                "splits-share-a-seed",
                "draw_corpus",
                "np.random.default_rng([seed, stream])",
                "np.random.default_rng([seed, 0])",
            ),
            (
                "synthetic-seed",
                "draw_corpus",
                "np.random.default_rng([seed, stream])",
                "np.random.default_rng([0, stream])",
            ),
            ("truth-sign", "draw_corpus", "-model.log_probs(items)", "model.log_probs(items)"),
            (
                "hmm-first-state",
                "HiddenMarkov.sample",
                "follow[states[t - 1]] if t else first",
                "follow[states[t - 1]]",
            ),
        ],
    ),
    *_of(
        "latflow/data/midi.py",
        "tests/data/test_midi.py",
        [
            ("midi-rounds-down", "_round", "steps + Fraction(1, 2)", "steps"),
            ("midi-rounds-up", "_round", "steps + Fraction(1, 2)", "steps + Fraction(99, 100)"),
            (
                "midi-short-notes",
                "parse_midi",
                "roll[on : max(off, on + 1), note - LOWEST] = 1",
                "roll[on:off, note - LOWEST] = 1",
            ),
            ("midi-articulate", "parse_midi", "if articulate:", "if False:"),
            (
                "midi-pitch",
                "parse_midi",
                "roll[on : max(off, on + 1), note - LOWEST]",
                "roll[on : max(off, on + 1), note - LOWEST - 1]",
            ),
        ],
    ),
    *_of(
        "latflow/data/base.py",
        (TRAINING, "tests/data/test_base.py"),
        [
            (
                "order-same-every-epoch",
                "Batches.plan",
                "np.random.default_rng([self.seed, epoch])",
                "np.random.default_rng([self.seed, 0])",
            ),
            ("batches-not-shuffled", "Batches.plan", "if self.shuffle else batches", "if False else batches"),
            ("lengths-not-jittered", "Batches.plan", "/ 10", "/ 1000"),
            (
                "transpose-zero-ignored",
                "Batches._varied",
                "rng.random() < self.transpose_zero",
                "rng.random() < 0.3",
            ),
            (
                "transpose-other-way",
                "Batches._varied",
                "np.roll(roll, shift, axis=1)",
                "np.roll(roll, -shift, axis=1)",
            ),
            (
                "crop-from-the-start",
                "Batches._varied",
                "int(rng.integers(self.sequences.lengths[i] - length + 1))",
                "0",
            ),
            ("filler-weight", "Batches.epoch", "1.0 if len(mine) else 0.0", "1.0"),
        ],
    ),
    *_of(
        "latflow/data/base.py",
        "tests/data/test_unknown.py",
        [
            (
                "unknown-always",
                "Batches._replaced",
                "rng.random(len(self._once)) < 0.5",
                "rng.random(len(self._once)) < 0.9",
            )
        ],
    ),
    *_of(
        "latflow/data/spec.py",
        (TRAINING, "tests/data/test_base.py"),
        [
            ("smooth-less", "length_counts", "int(1.25 * (len(counts) - 1))", "int(1.0 * (len(counts) - 1))"),
            ("smooth-ignored", "length_counts", "counts[1:] += 1", "pass"),
        ],
    ),
    *_of(
        "latflow/data/own.py",
        ("tests/data/test_text.py", "tests/test_fields.py"),
        [
            ("split-seed", "seeded_split", "default_rng(config.split_seed)", "default_rng(0)"),
            (
                "valid-fraction",
                "seeded_split",
                "round(config.valid_fraction * len(order))",
                "round(0.1 * len(order))",
            ),
            (
                "test-fraction",
                "seeded_split",
                "round(config.test_fraction * len(order))",
                "round(0.1 * len(order))",
            ),
            ("max-length", "keep_lengths", "given <= limit if limit else", "given >= 0 if limit else"),
        ],
    ),
    *_of(
        "latflow/data/text.py",
        "tests/data/test_text.py",
        [("chunk-ignored", "text_lines", "if config.chunk:", "if False:")],
    ),
    *_of(
        "latflow/data/labels.py",
        "tests/data/test_labels.py",
        [("keys-moved", "moved_keys", "keys + 2 * shift", "keys + shift")],
    ),
    # reproduce
    *_of(
        "latflow/reproduce/work.py",
        USE,
        [
            ("result-of-valid", "measure", 'corpus.splits["test"],\n', 'corpus.splits["valid"],\n'),
            ("result-of-last", "measure", "run.model()", 'run.model("last")'),
            (
                "result-in-seconds",
                "measure",
                '(curve["seconds"][-1] or 0.0) / 60',
                '(curve["seconds"][-1] or 0.0)',
            ),
            ("result-first-seconds", "measure", 'curve["seconds"][-1]', 'curve["seconds"][0]'),
            ("result-samples", "measure", "samples=SAMPLES", "samples=10"),
            ("result-best-epoch", "measure", "1 + best_index", "best_index"),
            ("result-truth", "measure", 'corpus.truth["test"]', 'corpus.truth["valid"]'),
        ],
    ),
    *_of(
        "latflow/reproduce/result.py",
        ("tests/reproduce/test_tables.py", "tests/reproduce/test_work.py", USE),
        [
            ("worst-epoch", "best_index", "min(known)[1]", "max(known)[1]"),
            ("all-comparable", "comparable", "all(map(_is_how, changes(preset, config)))", "True"),
            ("command-without-changes", "command", "if not changed:", "if True:"),
        ],
    ),
    *_of(
        "latflow/use/whole.py",
        "tests/use/test_whole.py",
        [
            ("whole-without-q", "Whole._draw", "given) - log_q[:n, t]", "given)"),
            (
                "whole-wider-draws-only",
                "Whole.guess",
                "square() + log_std +",
                "square() + log_std - 0.18 +",
            ),
            ("whole-past-counts-again", "walk_whole", "log_known - before", "log_known"),
            ("whole-past-of-others", "walk_whole", "before, stale = before[index], True", "stale = True"),
            ("whole-drawn-from-the-start", "walk_whole", "whole.guess(decided)", "whole.guess(0)"),
            ("whole-iaf-sees-z", "Whole._draw", "if self.sees_noise:", "if False:"),
            ("whole-free-notes-count", "Whole.log_known", ".masked_fill(~self.known, 0).sum(-1)", ".sum(-1)"),
        ],
    ),
    # cli
    *_of(
        "latflow/cli/evaluate.py",
        USE,
        [
            ("cli-split-ignored", "run", "corpus.splits[args.split]", 'corpus.splits["test"]'),
            ("cli-truth-of-test", "run", "corpus.truth[args.split]", 'corpus.truth["test"]'),
            ("cli-samples-ignored", "run", "samples=args.samples", "samples=50"),
            ("cli-seed-ignored", "run", "seed=args.seed", "seed=0"),
            ("cli-weights-ignored", "run", "made.model(args.weights)", "made.model()"),
        ],
    ),
    *_of(
        "latflow/cli/sample.py",
        USE,
        [
            ("cli-sample-temperature", "run", "1.0 if args.temperature is None else args.temperature", "1.0"),
            (
                "cli-sample-argmax",
                "run",
                "argmax=bool(args.argmax),\n            seed",
                "argmax=False,\n            seed",
            ),
            ("cli-sample-seed", "run", "argmax=bool(args.argmax),\n            seed=args.seed", "seed=0"),
            ("cli-sample-length", "run", "length=args.length", "length=None"),
            ("cli-sample-n", "run", "n = 8 if args.n is None else args.n", "n = 8"),
        ],
    ),
    *_of(
        "latflow/cli/score.py",
        USE,
        [
            ("cli-score-samples", "_file", "samples=args.samples", "samples=50"),
            ("cli-score-seed", "_file", "seed=args.seed", "seed=0"),
        ],
    ),
]
