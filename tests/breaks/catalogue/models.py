from tests.breaks.patch import DRAWS, TRAINING, USE, of

BREAKS = [
    *of(
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
    *of(
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
    *of(
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
    *of(
        "latflow/models/codes.py",
        "tests/models/test_codebook.py",
        [
            ("notes-up-always", "Codes.turned", "if self.down", "if False"),
            ("notes-read-upside-down", "Codes.log_likelihoods", "self.turned(on - off)", "on - off"),
            ("notes-of-text", "Codes.__init__", "if self.down and not self.music:", "if False:"),
        ],
    ),
    *of(
        "latflow/models/axes.py",
        "tests/models/test_codebook.py",
        [
            (
                "notes-start-upside-down",
                "mixture",
                "posterior.codes.turned(log_odds(parts.spec))",
                "log_odds(parts.spec)",
            )
        ],
    ),
    *of(
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
    *of(
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
    *of(
        "latflow/models/symbols.py",
        DRAWS,
        [
            ("bernoulli-noise-doubled", "Bernoulli.noise", "torch.logit(u)", "2 * torch.logit(u)"),
            ("bernoulli-noise-normal", "Bernoulli.noise", "torch.rand(", "torch.randn("),
            ("gumbel-halved", "Categorical.noise", "-self.bias", "-0.5 * self.bias"),
        ],
    ),
    *of(
        "latflow/models/symbols.py",
        USE,
        [("alphabet-argmax", "Alphabet.sample", "scores if argmax else", "scores if False else")],
    ),
    *of(
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
    *of(
        "latflow/models/posterior/bilstm.py",
        TRAINING,
        [("posterior-scale", "BiLSTMPosterior.forward", "0.5 * log_variance", "log_variance")],
    ),
    *of(
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
    *of(
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
    *of(
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
    *of(
        "latflow/models/codes.py",
        "tests/models/test_codebook.py",
        [
            ("codes-sigma", "Codes.__init__", "math.log(sigma)", "sigma"),
            ("codes-learned", "Codes.__init__", "if learned:", "if True:"),
            (
                "codes-density",
                "Codes.log_likelihoods",
                "log_normals(z, self.means, self.log_scales)",
                "log_normals(z, self.means, -self.log_scales)",
            ),
            ("codes-counts", "log_odds", "counts / counts.sum()", "counts * 0 + 1"),
        ],
    ),
    *of(
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
    *of(
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
]
