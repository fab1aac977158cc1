"""Variations of a sequence, and the way from one to another."""

from __future__ import annotations

import numpy as np
import pytest

from latflow.errors import LatflowError
from latflow.use import between, like
from tests.models.cases import small_model
from tests.use.test_given import SPEC, music_spec, tiny

pytestmark = pytest.mark.usefixtures("double")


def test_without_noise_a_sequence_stays_and_with_all_of_it_nothing_is_left():
    model = tiny("af-af")
    x, other = SPEC.encode("abca"), SPEC.encode("cbbc")
    assert [SPEC.decode(v) for v in like(model, x, 3, noise=0)] == ["abca"] * 3
    new, also = (np.stack(like(model, v, 50, noise=1, seed=2)) for v in (x, other))
    assert (new == also).all()
    assert len({tuple(v) for v in new}) > 5
    near = np.stack(like(model, x, 200, noise=0.2, seed=1))
    assert (near == x).mean() > (new == x).mean() + 0.1
    assert (np.stack(like(model, x, 200, noise=0.2, seed=1)) == near).all()


def test_the_way_begins_and_ends_where_it_was_told():
    model = tiny("af-af")
    way = between(model, SPEC.encode("abca"), SPEC.encode("cba"), 5)
    assert [SPEC.decode(way[0]), SPEC.decode(way[-1])] == ["abca", "cba"]
    assert [len(x) for x in way] == [4, 4, 4, 3, 3]


def test_music_keeps_its_condition():
    """A model that is told of transpositions goes through eps with what it is told, and comes back."""
    from dataclasses import replace

    from latflow.beyond import MUSIC_ROWS
    from latflow.models import build
    from tests.use.test_given import small_config

    model = (
        build(small_config(MUSIC_ROWS["af-none-mixture"]), replace(music_spec(3), shifts=2)).double().eval()
    )
    assert model.condition is not None
    roll = np.zeros((3, 88), np.uint8)
    roll[:, [30, 40]] = 1
    assert (like(model, roll, 1, noise=0)[0] == roll).all()
    assert (between(model, roll, roll, 3)[1] == roll).all()


def test_what_cannot_be_varied_is_told():
    x = SPEC.encode("abca")
    with pytest.raises(LatflowError, match="no latent z to vary"):
        like(small_model("lstm", SPEC), x)
    with pytest.raises(LatflowError, match=r"noise from 0 .* to 1"):
        like(tiny("af-af"), x, noise=2)
    with pytest.raises(LatflowError, match="2 or more, for both ends"):
        between(tiny("af-af"), x, x, 1)
    with pytest.raises(LatflowError, match="length 5; this model knows"):
        between(tiny("af-af"), x, SPEC.encode("abcab"))
