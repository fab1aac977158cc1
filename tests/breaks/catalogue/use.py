from tests.breaks.patch import USE, of

BREAKS = [
    *of(
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
    *of(
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
    *of(
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
    *of(
        "latflow/use/walkers.py",
        "tests/use/test_given.py",
        [
            ("given-other-notes-known", "CodebookWalker._notes", "turned(known).tolist()", "known.tolist()"),
            (
                "given-notes-upside-down",
                "CodebookWalker._notes",
                "turned(self.x), self.walk.z",
                "self.x, self.walk.z",
            ),
        ],
    ),
    *of(
        "latflow/use/export.py",
        "tests/test_shipped.py",
        [
            ("export-paths", "portable", '"data.name": name', '"data.name": config.data.name'),
            ("export-half-always", "save", "if half else", "if True else"),
        ],
    ),
    *of(
        "latflow/use/compare.py",
        "tests/cli/test_compare.py",
        [
            ("compare-unpaired", "compare", "error_of(total - first,", "error_of(total,"),
            ("compare-other-data", "_check_same", "raise LatflowError(", "LatflowError("),
            ("compare-split", "compare", "corpus.splits[split]", 'corpus.splits["test"]'),
        ],
    ),
    *of(
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
]
