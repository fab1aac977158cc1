"""Rolls as pictures and sound."""

from __future__ import annotations

import os
import wave
from pathlib import Path

import numpy as np
import pytest

from latflow.data import export
from latflow.data.export import RATE, save_png, save_wav, synthesise
from latflow.errors import LatflowError, LatflowWarning

A4 = 69 - 21


@pytest.fixture(autouse=True)
def _no_fluidsynth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export.shutil, "which", lambda name: None)
    monkeypatch.delenv("LATFLOW_SOUNDFONT", raising=False)


def test_a_picture_shows_the_notes_where_they_are(tmp_path: Path) -> None:
    from matplotlib.image import imread

    roll = np.zeros((40, 88), np.uint8)
    roll[:20, 80:] = 1  # high and early: the upper left
    roll[-1, 0] = 1  # the lowest note: what does not occur is not shown
    save_png(tmp_path / "roll.png", roll, "a title")
    picture = imread(tmp_path / "roll.png")[..., :3]
    blue = (picture[..., 2] - picture[..., 0]) > 0.3
    rows, columns = np.nonzero(blue)
    assert rows.mean() < 0.3 * picture.shape[0]
    assert columns.mean() < 0.45 * picture.shape[1]
    assert [file.name for file in tmp_path.iterdir()] == ["roll.png"]


def test_a_note_sounds_at_its_pitch_and_time() -> None:
    roll = np.zeros((8, 88), np.uint8)
    roll[4:6, A4] = 1
    sound = synthesise(roll, 0.25)
    assert sound.shape == (2 * RATE + RATE // 2,)
    assert not sound[: RATE - 1].any()  # silent until step 4, at one second
    assert np.abs(sound).max() == pytest.approx(0.9, abs=1e-6)
    assert not sound[int(1.6 * RATE) :].any()
    spectrum = np.abs(np.fft.rfft(sound[RATE : RATE + RATE // 2]))
    assert np.argmax(spectrum) * 2 == pytest.approx(440, abs=2)  # bins of 2 Hz


def test_a_held_note_is_struck_once() -> None:
    held, struck = np.zeros((4, 88), np.uint8), np.zeros((4, 88), np.uint8)
    held[:, A4] = 1
    struck[::2, A4] = 1
    late = slice(int(0.55 * RATE), int(0.75 * RATE))  # the second stroke, two steps on
    assert np.abs(synthesise(held, 0.25)[late]).max() < 0.7 * np.abs(synthesise(struck, 0.25)[late]).max()


@pytest.mark.parametrize("silent", [True, False])
def test_a_wav_file_has_the_right_length_and_sound(tmp_path: Path, silent: bool) -> None:
    roll = np.zeros((16, 88), np.uint8)
    roll[:, A4] = not silent
    assert save_wav(tmp_path / "a.wav", roll, steps_per_beat=4, beats_per_minute=240) == "plain"
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, RATE)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert len(samples) == RATE + RATE // 2
    assert (np.abs(samples).max() > 20_000) == (not silent)


def fake_fluidsynth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    player, font = tmp_path / "fluidsynth", tmp_path / "font.sf2"
    player.write_text("#!/bin/sh\n" + script)
    player.chmod(0o755)
    font.touch()
    monkeypatch.setattr(export.shutil, "which", lambda name: str(player))
    monkeypatch.setenv("LATFLOW_SOUNDFONT", str(font))


def test_fluidsynth_plays_if_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # -ni -g 0.6 -r 44100 -F OUT FONT MIDI
    fake_fluidsynth(tmp_path, monkeypatch, 'head -c 4 "$9" > "$7"; echo "$8" >> "$7"')
    out = tmp_path / "out"
    assert save_wav(out / "a.wav", [[60]]) == "fluidsynth"
    assert (out / "a.wav").read_text() == f"MThd{tmp_path / 'font.sf2'}\n"
    assert os.listdir(out) == ["a.wav"]


@pytest.mark.parametrize("script", ["exit 1", "exit 0"])
def test_the_plain_synthesiser_takes_over_if_fluidsynth_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    fake_fluidsynth(tmp_path, monkeypatch, script)
    out = tmp_path / "out"
    with pytest.warns(LatflowWarning, match="fluidsynth failed"):
        assert save_wav(out / "a.wav", [[60]]) == "plain"
    assert os.listdir(out) == ["a.wav"]
    monkeypatch.setenv("LATFLOW_SOUNDFONT", str(tmp_path / "gone.sf2"))
    with pytest.raises(LatflowError, match="LATFLOW_SOUNDFONT"):
        save_wav(out / "b.wav", [[60]])


def test_what_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for save in (save_png, save_wav):
        with pytest.raises(LatflowError, match="without time steps"):
            save(tmp_path / "a", [])
        with pytest.raises(LatflowError, match="MIDI note 5"):
            save(tmp_path / "a", [[5]])
    (tmp_path / "file").touch()
    with pytest.raises(LatflowError, match="file"):
        save_png(tmp_path / "file" / "a.png", [[60]])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(wave.Wave_write, "writeframes", full)
    (tmp_path / "a.wav").write_text("old")
    with pytest.raises(LatflowError, match="No space left"):
        save_wav(tmp_path / "a.wav", [[60]])
    assert (tmp_path / "a.wav").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["a.wav", "file"]
