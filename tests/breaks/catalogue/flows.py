from tests.breaks.patch import DRAWS, TRAINING, USE, of

BREAKS = [
    *of(
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
    *of(
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
    *of(
        "latflow/flows/hidden.py",
        DRAWS,
        [("network-dropout", "HiddenFlow.__init__", "network.dropout = dropout", "network.dropout = 0.0")],
    ),
    *of(
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
    *of(
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
            ("context-dropout-not-given", "LSTMContext.__init__", "layers, dropout=dropout,", "layers,"),
            (
                "context-recurrent-dropout-not-given",
                "LSTMContext.__init__",
                ", recurrent_dropout=recurrent_dropout)",
                ")",
            ),
        ],
    ),
    *of(
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
    *of(
        "latflow/flows/recurrent.py",
        "tests/training/test_loop.py",
        [("rounded-always", "LSTM.rounds", "self.rounded and self.training", "self.rounded")],
    ),
    *of(
        "latflow/flows/recurrent.py",
        DRAWS,
        [
            ("lstm-dropout-whole", "LSTM.forward", "x = F.dropout(x, self.dropout, self.training)", "pass"),
            (
                "recurrent-dropout-always",
                "LSTM.parts",
                "self.recurrent_dropout, self.training)",
                "self.recurrent_dropout)",
            ),
            (
                "recurrent-dropout-of-another",
                "LSTM.parts",
                "self.recurrent_dropout, self.training)",
                "self.dropout, self.training)",
            ),
        ],
    ),
    *of(
        "latflow/flows/recurrent.py",
        TRAINING,
        [
            ("cell-forget", "lstm_cell", "f.sigmoid() * c", "c"),
            ("cell-output", "lstm_cell", "o.sigmoid() * c.tanh()", "o.sigmoid() * c"),
            ("backward-forwards", "LSTM.whole", "backwards=direction == 1", "backwards=False"),
            ("features-in-all-layers", "LSTM.forward", "features if layer == 0 else None", "features"),
        ],
    ),
    *of(
        "latflow/flows/positions.py",
        TRAINING,
        [("position-end", "Positions.forward", "start.add_(end)", "start - end")],
    ),
    *of(
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
    *of(
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
    *of(
        "latflow/flows/tied.py",
        "tests/flows/test_tied.py",
        [
            (
                "tied-weights-carried",
                "TiedMixture._walk",
                "logits - 0.5 * x.square() - log_scale",
                "logits - 0.5 * x.square()",
            ),
            ("tied-density", "log_normals", "0.5 * x.square()", "x.square()"),
        ],
    ),
]
