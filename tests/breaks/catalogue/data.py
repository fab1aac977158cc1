from tests.breaks.patch import DRAWS, TRAINING, of

BREAKS = [
    *of(
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
    *of(
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
    *of(
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
                "even-batches-empty",
                "Batches._begins",
                "np.maximum.accumulate(begins - number)",
                "begins - number",
            ),
            ("even-without-the-end", "Batches._begins", "self._lengths[order] + 1", "self._lengths[order]"),
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
    *of(
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
    *of(
        "latflow/data/spec.py",
        (TRAINING, "tests/data/test_base.py"),
        [
            ("smooth-less", "length_counts", "int(1.25 * (len(counts) - 1))", "int(1.0 * (len(counts) - 1))"),
            ("smooth-ignored", "length_counts", "counts[1:] += 1", "pass"),
        ],
    ),
    *of(
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
    *of(
        "latflow/data/text.py",
        "tests/data/test_text.py",
        [("chunk-ignored", "text_lines", "if config.chunk:", "if False:")],
    ),
    *of(
        "latflow/data/labels.py",
        "tests/data/test_labels.py",
        [("keys-moved", "moved_keys", "keys + 2 * shift", "keys + shift")],
    ),
]
