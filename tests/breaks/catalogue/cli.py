from tests.breaks.patch import USE, of

BREAKS = [
    *of(
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
    *of(
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
    *of(
        "latflow/cli/score.py",
        USE,
        [
            ("cli-score-samples", "_file", "samples=args.samples", "samples=50"),
            ("cli-score-seed", "_file", "seed=args.seed", "seed=0"),
        ],
    ),
]
