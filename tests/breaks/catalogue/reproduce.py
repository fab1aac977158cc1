from tests.breaks.patch import USE, of

BREAKS = [
    *of(
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
    *of(
        "latflow/reproduce/result.py",
        ("tests/reproduce/test_tables.py", "tests/reproduce/test_work.py", USE),
        [
            ("worst-epoch", "best_index", "min(known)[1]", "max(known)[1]"),
            ("all-comparable", "comparable", "all(map(_is_how, changes(preset, config)))", "True"),
            ("command-without-changes", "command", "if not changed:", "if True:"),
        ],
    ),
]
