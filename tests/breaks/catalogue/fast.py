from tests.breaks.patch import USE, of

BREAKS = [
    *of(
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
    *of(
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
    *of(
        "latflow/fast/sequences.py",
        "tests/fast/test_registry.py::test_twins_give_the_numbers_of_their_definition[BiLSTMEmission.head_scores]",
        [("fast-head-scale", "multiplied_out", "own / emission.scale", "own")],
    ),
    *of(
        "latflow/fast/layers.py",
        "tests/fast/test_registry.py::test_twins_give_the_numbers_of_their_definition[HiddenFlow.stepper]",
        [("fast-dropout-unscaled", "_Density.backward", "below /= 1 - layer.dropout", "pass")],
    ),
    *of(
        "latflow/fast/products.py",
        (
            "tests/fast/test_registry.py::test_twins_give_the_numbers_of_their_definition[LSTM.whole]",
            "tests/fast/test_products.py",
        ),
        [
            ("fast-packed-back", "PackedProducts.backward_packed", "self.transposed", "self.weight"),
            ("fast-packed-add", "PackedProducts.add", "gates.add_(", "gates.copy_("),
            ("fast-packed-never", "products", "if large and", "if False and"),
        ],
    ),
    *of(
        "latflow/fast/products.py",
        "tests/fast/test_rounded.py",
        [
            ("fast-rounded-gradient", "RoundedProducts.gradient", "rounded(grad), rounded(h)", "grad, h"),
            ("fast-rounded-back", "RoundedProducts.back", "rounded(grad), out", "grad, out"),
            (
                "fast-rounded-transposed",
                "CompiledRoundedProducts.forward_arranged",
                "right_of_transposed(self.weight)",
                "right_of_transposed(self.weight.flip(0))",
            ),
        ],
    ),
    *of(
        "latflow/fast/kernels/dots.py",
        "tests/fast/test_rounded.py",
        [
            ("kernel-dots-add", "multiply", "if not add:", "if True:"),
            ("kernel-dots-stretch", "multiply", "(n * steps + k) * BYTES", "n * steps * BYTES"),
            ("kernel-dots-chunk", "multiply", "min(begin + CHUNK, rows)", "min(CHUNK, rows)"),
            ("kernel-dots-lower", "multiply", "+ m % 16 * 64", ""),
        ],
    ),
    *of(
        "latflow/fast/tied.py",
        "tests/fast/test_registry.py::test_twins_give_the_numbers_of_their_definition[log_normals]",
        [("fast-log-normals", "log_normals_by_products", "0.5 * means * pull", "means * pull")],
    ),
    *of(
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
    *of(
        "latflow/fast/linear.py",
        "tests/fast/test_twins.py",
        [
            ("fast-tape-bias", "_total", "bias + total", "bias"),
            ("fast-tape-kept", "_Tape.take", "self.inputs, self.grads = [], []", "pass"),
        ],
    ),
    *of(
        "latflow/fast/kernels/lstm.py",
        "tests/fast/test_twins.py",
        [
            ("kernel-cell", "lstm_cell", "f[k] * c_row[k] + i[k] * g[k]", "f[k] * c_row[k] + g[k]"),
            ("kernel-cell-gradient", "lstm_rows_backward", "dc[k] *= f[k]", "dc[k] *= one"),
        ],
    ),
    *of(
        "latflow/fast/kernels/layers.py",
        "tests/fast/test_twins.py",
        [
            ("kernel-density", "nlsq_density", "logdet[row] += log_b + ", "logdet[row] += "),
            ("kernel-gradient", "nlsq_density_gradient", "(4 * r - 3)", "(4 * r + 3)"),
        ],
    ),
]
