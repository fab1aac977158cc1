"""A seed means the same draws, now and in later versions."""

import torch

from latflow.training.seeds import Stream, seeded


def test_the_numbers_of_the_streams_stay():
    """They are part of what a seed means: another number would give other weights, samples and figures."""
    assert {stream.name: stream.value for stream in Stream} == {
        "WEIGHTS": 0,
        "TRAINING": 1,
        "EVALUATION": 2,
        "SAMPLING": 3,
        "SCORING": 4,
        "FIGURE_POSTERIOR": 5,
        "FIGURE_PRIOR": 6,
        "FIGURE_DATA": 7,
        "GIVEN": 8,
    }


def test_a_place_has_its_own_draws_and_leaves_the_others_alone():
    before = torch.get_rng_state()
    drawn = []
    for key in (
        (0, Stream.TRAINING, 1),
        (0, Stream.TRAINING, 2),
        (0, Stream.SCORING, 1),
        (1, Stream.TRAINING, 1),
    ):
        for _ in range(2):
            with seeded(*key):
                drawn.append(float(torch.rand(())))
    assert drawn[::2] == drawn[1::2]
    assert len(set(drawn)) == 4
    assert torch.equal(torch.get_rng_state(), before)


def test_a_place_has_the_seed_it_always_had():
    with seeded(5, Stream.TRAINING, 2, 3, 0):
        assert torch.initial_seed() == 7646322680280248568
