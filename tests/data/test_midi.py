"""MIDI in and out."""

from __future__ import annotations

import struct
from pathlib import Path

import mido
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latflow.config import DataConfig
from latflow.data import load
from latflow.data.midi import read_midi, write_midi
from latflow.data.stats import describe
from latflow.errors import LatflowError, LatflowWarning

Message, Meta = mido.Message, mido.MetaMessage


def save(path: Path, *tracks: list, kind: int = 1, division: int = 480) -> Path:
    file = mido.MidiFile(type=kind, ticks_per_beat=division)
    file.tracks.extend(mido.MidiTrack(track) for track in tracks)
    file.save(path)
    return path


def on(note: int, time: int = 0, channel: int = 0, velocity: int = 64) -> mido.Message:
    return Message("note_on", note=note, time=time, channel=channel, velocity=velocity)


def off(note: int, time: int = 0, channel: int = 0) -> mido.Message:
    return Message("note_off", note=note, time=time, channel=channel)


def pedal(value: int, time: int = 0, channel: int = 0, control: int = 64) -> mido.Message:
    return Message("control_change", control=control, value=value, time=time, channel=channel)


def steps(roll: np.ndarray) -> list[list[int]]:
    return [(np.flatnonzero(step) + 21).tolist() for step in roll]


def raw(*tracks: bytes, kind: int = 1, division: int = 4, count: int | None = None) -> bytes:
    """A file byte by byte, as mido would not write it."""
    head = struct.pack(">4sIhhh", b"MThd", 6, kind, len(tracks) if count is None else count, division)
    return head + b"".join(b"MTrk" + struct.pack(">I", len(track)) + track for track in tracks)


END = b"\x00\xff\x2f\x00"

rolls = st.tuples(st.integers(1, 24), st.floats(0, 0.6), st.integers(0, 2**32 - 1)).map(
    lambda a: (np.random.default_rng(a[2]).random((a[0], 88)) < a[1]).astype(np.uint8)
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rolls, st.sampled_from([1, 2, 3, 4, 7, 12, 24, 96]), st.sampled_from([30, 97.3, 120, 240]))
def test_any_roll_survives_midi(tmp_path: Path, roll: np.ndarray, per_beat: int, tempo: float) -> None:
    path = tmp_path / "roll.mid"
    write_midi(path, roll, per_beat, tempo)
    back = read_midi(path, per_beat)
    assert back.dtype == np.uint8
    assert np.array_equal(back, roll)


@pytest.mark.parametrize("silent", [slice(None), slice(0, 3), slice(5, None), slice(2, 6)])
def test_silence_survives_wherever_it_is(tmp_path: Path, silent: slice) -> None:
    roll = np.ones((8, 88), np.uint8)
    roll[silent] = 0
    write_midi(tmp_path / "a.mid", roll)
    assert np.array_equal(read_midi(tmp_path / "a.mid"), roll)
    assert [file.name for file in tmp_path.iterdir()] == ["a.mid"]  # no temporary file stays


def test_tracks_sound_together_and_drums_do_not(tmp_path: Path) -> None:
    path = save(
        tmp_path / "a.mid",
        [Meta("track_name", name="lead"), on(60), off(60, 240)],
        [on(64, 120, channel=3), off(64, 120, channel=3)],
        [on(36, 0, channel=9), off(36, 480, channel=9)],
    )
    assert steps(read_midi(path)) == [[60], [60, 64], [], []]  # the drums' track still lasts four steps


def test_starts_and_ends_go_to_the_nearest_step_and_short_notes_get_one(tmp_path: Path) -> None:
    path = save(
        tmp_path / "a.mid", [on(60, 59), off(60, 2), on(62, 60), off(62, 118), on(64, 1), off(64, 10)]
    )
    #  60: 59..61 -> 0..1     62: 121..239 -> 1..2     64: 240..250 -> 2..2, so one step
    assert steps(read_midi(path)) == [[60], [62], [64]]


def test_the_nearest_step_is_neither_the_one_before_nor_the_one_after(tmp_path: Path) -> None:
    """120 ticks a step. Rounded down 60 would begin at 0 and 62 end at 3, rounded up 62 would begin at 3."""
    path = save(tmp_path / "a.mid", [on(60, 100), off(60, 100), on(62, 65), off(62, 190)])
    #  60: 100..200 -> 1..2     62: 265..455 -> 2..4
    assert steps(read_midi(path)) == [[], [60], [62], [62]]
    # The same on a grid of seconds: 480 ticks are half a second, 8 steps a second.
    assert steps(read_midi(path, steps_per_second=8)) == [[], [60], [62], [62]]


def test_the_tempo_counts_only_on_a_grid_of_seconds(tmp_path: Path) -> None:
    half = Meta("set_tempo", tempo=1_000_000, time=0)
    path = save(tmp_path / "a.mid", [on(60), off(60, 480), half, on(62), off(62, 480)])
    assert steps(read_midi(path, 1)) == [[60], [62]]
    # 120 beats a minute, then 60: half a second, then one.
    assert steps(read_midi(path, steps_per_second=4)) == [[60]] * 2 + [[62]] * 4
    assert steps(read_midi(path, steps_per_second=2)) == [[60]] + [[62]] * 2


def test_tempo_changes_in_another_track_and_within_a_note(tmp_path: Path) -> None:
    path = save(
        tmp_path / "a.mid",
        [Meta("set_tempo", tempo=500_000), Meta("set_tempo", tempo=250_000, time=480)],
        [on(60), off(60, 960)],
    )
    assert len(read_midi(path, steps_per_second=8)) == 6  # 0.5 s and 0.25 s


def test_the_pedal_holds_notes(tmp_path: Path) -> None:
    track = [pedal(127), on(60), off(60, 120), on(62), off(62, 120), pedal(0, 120), on(64), off(64, 120)]
    assert steps(read_midi(save(tmp_path / "a.mid", track))) == [[60], [60, 62], [60, 62], [64]]
    other = [pedal(127, channel=1), on(60), off(60, 120), on(62), off(62, 120)]
    assert steps(read_midi(save(tmp_path / "b.mid", other))) == [[60], [62]]  # another channel's pedal
    never = [pedal(127), on(60), off(60, 120), on(62), off(62, 120)]
    assert steps(read_midi(save(tmp_path / "c.mid", never))) == [[60], [60, 62]]


@pytest.mark.parametrize("control", [120, 123])
def test_all_notes_off(tmp_path: Path, control: int) -> None:
    track = [on(60), pedal(0, 120, control=control), on(62), off(62, 120)]
    assert steps(read_midi(save(tmp_path / "a.mid", track))) == [[60], [62]]


def test_notes_struck_twice_notes_without_end_and_velocity_0(tmp_path: Path) -> None:
    twice = [on(60), on(60, 120), off(60, 120), off(60, 120)]
    assert steps(read_midi(save(tmp_path / "a.mid", twice))) == [[60]] * 3
    endless = [on(60), on(62), off(62, 120), Meta("end_of_track", time=120)]
    assert steps(read_midi(save(tmp_path / "b.mid", endless))) == [[60, 62], [60]]
    silent = [on(60), on(60, 240, velocity=0), off(72, 240)]
    assert steps(read_midi(save(tmp_path / "c.mid", silent))) == [[60], [60], [], []]


def test_repeated_notes_are_kept_apart_if_asked(tmp_path: Path) -> None:
    legato = [on(60), on(64), off(60, 240), on(60), off(60, 240), off(64)]
    path = save(tmp_path / "a.mid", legato)
    assert steps(read_midi(path)) == [[60, 64]] * 4
    assert steps(read_midi(path, articulate=True)) == [[60, 64], [64], [60, 64], [60, 64]]
    every = [on(60), off(60, 120), on(60), off(60, 120), on(60), off(60, 240), on(60), off(60, 120)]
    path = save(tmp_path / "b.mid", every)  # two strikes a step apart cannot be told apart on this grid
    assert steps(read_midi(path, articulate=True)) == [[60], [60], [60], [], [60]]
    assert steps(read_midi(path, 8, articulate=True)) == [
        [60],
        [],
        [60],
        [],
        [60],
        [60],
        [60],
        [],
        [60],
        [60],
    ]
    over = save(tmp_path / "c.mid", [on(60), on(60, 240), off(60, 120), off(60, 120)])  # two voices
    assert steps(read_midi(over, articulate=True)) == [[60], [], [60], [60]]
    (tmp_path / "folder").mkdir()
    for i in range(4):
        save(tmp_path / "folder" / f"{i}.mid", legato)
    corpus = load(DataConfig(f"midi:{tmp_path / 'folder'}", articulate=True))
    assert steps(corpus.splits["test"][0]) == [[60, 64], [64], [60, 64], [60, 64]]


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rolls)
def test_what_was_written_is_articulate_already(tmp_path: Path, roll: np.ndarray) -> None:
    write_midi(tmp_path / "a.mid", roll)
    assert np.array_equal(read_midi(tmp_path / "a.mid", articulate=True), roll)


def test_notes_outside_the_piano_and_of_no_length_are_dropped_and_counted(tmp_path: Path) -> None:
    path = save(tmp_path / "a.mid", [on(60), off(60, 120)], [on(20), on(109), off(20, 120), off(109)])
    with pytest.warns(LatflowWarning, match=r"a\.mid: 2 notes outside 21\.\.108 dropped \(track 2\)"):
        assert steps(read_midi(path)) == [[60]]
    path = save(tmp_path / "b.mid", [on(60), off(60), on(62), off(62, 120)])
    with pytest.warns(LatflowWarning, match=r"b\.mid: 1 notes of zero length dropped \(track 1\)"):
        assert steps(read_midi(path)) == [[62]]


def test_running_status_is_read(tmp_path: Path) -> None:
    # note on 60, then without repeating the status: note 60 velocity 0, note 62, note 62 velocity 0
    body = b"\x00\x90\x3c\x40" + b"\x01\x3c\x00" + b"\x00\x3e\x40" + b"\x02\x3e\x00" + END
    path = tmp_path / "a.mid"
    path.write_bytes(raw(body))
    assert steps(read_midi(path)) == [[60], [62], [62]]


GOOD = b"\x00\x90\x3c\x40\x04\x80\x3c\x40" + END


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty file"),
        (b"not a midi file at all", "does not begin with MThd"),
        (b"MThd\x00", "the header is cut off"),
        (raw(GOOD)[:-5], r"track 1 is cut off, 7 of 12 bytes"),
        (raw(GOOD, GOOD)[:-3], r"track 2 is cut off"),
        (raw(GOOD, count=3), "track 2 of 3 is missing"),
        (raw(GOOD, b"\x00\x90\x3c"), r"track 2 is damaged \(cut off\)"),
        (raw(b"\x00\x3c\x40"), "track 1 is damaged"),
        (raw(b"\x00\x90\xf0\xf0" + END), "track 1 is damaged"),
        (raw(GOOD, kind=2), "MIDI type 2"),
        (raw(GOOD, division=-7392), "SMPTE"),
        (raw(GOOD, division=0), "a beat of 0 ticks"),
        (raw(b"\xff\xff\xff\x7f\x90\x3c\x40\x04\x80\x3c\x40" + END, division=1), "more than 200000"),
        (raw(END), "no notes between 21 and 108"),
        (raw(b"\x00\x99\x3c\x40\x04\x89\x3c\x40" + END), "no notes between 21 and 108"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "bad.mid").write_bytes(content)
    with pytest.raises(LatflowError, match=r"bad\.mid: .*" + said) as caught:
        load(DataConfig(f"midi:{tmp_path}"))
    assert "\n" not in str(caught.value)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no device without an end")
def test_a_device_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(LatflowError, match="more than 67108864 bytes"):
        read_midi("/dev/zero")


def test_a_folder_is_read_around_its_bad_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    whole = [(rng.random((n, 88)) < 0.1).astype(np.uint8) for n in range(4, 14)]
    for i, roll in enumerate(whole):
        write_midi(tmp_path / f"{i}.mid", roll)
    (tmp_path / "broken.midi").write_bytes(raw(GOOD)[:-5])
    with pytest.warns(LatflowWarning, match=r"1 files left out: .*broken\.midi: track 1 is cut off"):
        corpus = load(DataConfig(f"midi:{tmp_path}"))
    (left_out,) = corpus.left_out
    assert left_out.startswith(f"{tmp_path / 'broken.midi'}: track 1 is cut off")
    assert describe(corpus)["left_out"] == [left_out]
    found = sorted((x for s in corpus.splits.values() for x in s), key=len)
    assert all(np.array_equal(a, b) for a, b in zip(found, whole, strict=True))
    assert corpus.spec.kind == "music"
    assert corpus.spec.max_T == int(1.25 * max(corpus.splits[s].lengths.max() for s in ("train", "valid")))


def test_folders_named_train_valid_test(tmp_path: Path) -> None:
    for split, note in (("train", 60), ("valid", 62), ("test", 64)):
        (tmp_path / split).mkdir()
        write_midi(tmp_path / split / "a.mid", [[note]] * 4)
    corpus = load(DataConfig(f"midi:{tmp_path}", steps_per_beat=2))
    assert corpus.spec.decode(corpus.splits["test"][0]) == [[64]] * 2


def test_grids_and_crops_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for i in range(5):
        write_midi(tmp_path / f"{i}.mid", [[60]] * 8)
    with pytest.raises(LatflowError, match="steps_per_beat is 0"):
        load(DataConfig(f"midi:{tmp_path}", steps_per_beat=0))
    with pytest.raises(LatflowError, match="steps_per_second is -1"):
        load(DataConfig(f"midi:{tmp_path}", steps_per_second=-1))
    with pytest.raises(LatflowError, match="crop is 4, a length that"):
        load(DataConfig(f"midi:{tmp_path}", crop=4, smooth_lengths=False))
    assert load(DataConfig(f"midi:{tmp_path}", crop=4)).spec.length_counts[4] == 1
    with pytest.raises(LatflowError, match="expected a folder"):
        load(DataConfig(f"midi:{tmp_path / '0.mid'}"))
    with pytest.raises(LatflowError, match="without time steps"):
        write_midi(tmp_path / "none.mid", [])
    assert not (tmp_path / "none.mid").exists()
