"""A roll to look at and to listen to: PNG and WAV."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import warnings
import wave
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from latflow.data.base import LOWEST, NOTES, roll_of
from latflow.data.files import replacing, writing
from latflow.data.midi import write_midi
from latflow.errors import LatflowError, LatflowWarning

RATE = 22050
"""Samples in a second of what the synthesiser makes."""
SILENT = 12
"""Seconds after which a note that is held cannot be heard: its lowest harmonic has come to exp(-18)."""
BLUE, ORANGE = "#1764ab", "#c54102"
_SOUNDFONTS = ("/usr/share/sounds/sf2", "/usr/share/soundfonts", "/usr/local/share/soundfonts")


def sounding(rolls: Iterable[np.ndarray]) -> tuple[int, int]:
    """The lowest and the highest note in any of the rolls, with two to spare: what a picture shows."""
    notes = np.flatnonzero(np.any([np.asarray(roll).any(0) for roll in rolls], axis=0))
    low, high = (int(notes[0]), int(notes[-1])) if len(notes) else (0, NOTES - 1)
    return max(0, low - 2), min(NOTES - 1, high + 2)


def save_png(path: str | Path, roll: Any, title: str = "", known: np.ndarray | None = None) -> None:
    """A picture of a roll: time to the right, the notes that occur upwards, the Cs named. Notes at entries that are
    `known` (T, 88) are orange, the others blue. (Drawn without matplotlib, which takes a second to load.)"""
    from PIL import Image, ImageDraw, ImageFont

    roll = _checked(roll) > 0
    known = np.zeros(roll.shape, bool) if known is None else known
    low, high = sounding([roll])
    left, top, right, bottom = 40, 30 if title else 8, 12, 48
    width, height = min(max(400, 200 + 8 * len(roll)), 2400) - left - right, 400 - top - bottom
    picture = Image.new("RGB", (left + width + right, top + height + bottom), "white")
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(size=13)
    for note in range(24, 109, 12):
        if low <= note - LOWEST <= high:
            y = top + round(height * (high + 0.5 - note + LOWEST) / (high - low + 1))
            draw.line([(left - 4, y), (left + width, y)], "#dddddd")
            draw.text((left - 8, y), f"C{note // 12 - 1}", "black", font, anchor="rm")
    every = next(k * 10**p for p in range(10) for k in (1, 2, 5) if len(roll) <= 8 * k * 10**p)
    for step in range(0, len(roll) + 1, every):
        x = left + round(width * step / len(roll))
        draw.line([(x, top + height), (x, top + height + 4)], "black")
        draw.text((x, top + height + 6), str(step), "black", font, anchor="ma")
    for sounds, colour in ((roll & ~known, BLUE), (roll & known, ORANGE)):
        cells = Image.fromarray(np.uint8(255) * sounds[:, low : high + 1].T[::-1])
        picture.paste(colour, (left, top), cells.resize((width, height), Image.Resampling.NEAREST))
    draw.rectangle([(left, top), (left + width, top + height)], outline="black")
    draw.text((left + width // 2, 400 - 6), "time step", "black", font, anchor="ms")
    draw.text((left + width // 2, top - 8), title, "black", font, anchor="ms")
    with writing(path) as partial:
        picture.save(partial, format="png")


def save_wav(path: str | Path, roll: Any, steps_per_beat: int = 4, beats_per_minute: float = 120) -> str:
    """A roll as sound; says which synthesiser played it.

    fluidsynth if it and a sound font ($LATFLOW_SOUNDFONT, or one in the usual folders) are there, else a
    plain one: sums of a few decaying harmonics, which needs nothing.
    """
    roll = _checked(roll)
    if beats_per_minute <= 0 or steps_per_beat < 1:
        raise LatflowError(
            f"{beats_per_minute} beats a minute, {steps_per_beat} steps a beat; both must be above 0"
        )
    player, font = shutil.which("fluidsynth"), find_soundfont()
    if player and font:
        try:
            _fluidsynth(path, roll, steps_per_beat, beats_per_minute, player, font)
            return "fluidsynth"
        except (OSError, subprocess.SubprocessError) as error:
            warnings.warn(
                f"fluidsynth failed ({error}); played by the plain one", LatflowWarning, stacklevel=2
            )
    sound = synthesise(roll, 60.0 / (steps_per_beat * beats_per_minute))
    with writing(path) as partial, wave.open(str(partial), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((sound * 32767).astype("<i2").tobytes())
    return "plain"


def synthesise(roll: np.ndarray, seconds_per_step: float) -> np.ndarray:
    """The sound of a roll (T, 88), float32 within +-0.9: ceil(T x seconds_per_step x RATE) samples and half
    a second to fade.

    A note held for several steps is struck once: four harmonics of weight 1 / k^1.5, each dying away faster
    than the one below it, with 5 ms to rise and 60 ms to fall.
    """
    tail = RATE // 2
    sound = np.zeros(int(np.ceil(len(roll) * seconds_per_step * RATE)) + tail, np.float32)
    edges = np.diff(np.pad(roll.astype(np.int8), ((1, 1), (0, 0))), axis=0)
    for key in np.flatnonzero(roll.any(axis=0)).tolist():
        for on, off in zip(
            np.flatnonzero(edges[:, key] == 1), np.flatnonzero(edges[:, key] == -1), strict=True
        ):
            start, stop = int(on * seconds_per_step * RATE), int(off * seconds_per_step * RATE)
            length = stop - start + int(0.06 * RATE)
            t = np.arange(length, dtype=np.float32) / RATE
            held = (stop - start) / RATE
            envelope = np.minimum(t / 0.005, 1) * np.clip(1 - (t - held) / 0.06, 0, 1)
            tone = _tone(key, min(-(-length // RATE), SILENT))[:length]
            sound[start : start + len(tone)] += envelope[: len(tone)] * tone
    loudest = float(np.abs(sound).max())
    return sound * (0.9 / loudest) if loudest > 0 else sound


@lru_cache(maxsize=NOTES)
def _tone(key: int, seconds: int) -> np.ndarray:
    """The harmonics of a key of the piano from the moment it is struck; all its notes, in all pieces, share them."""
    pitch = 440.0 * 2 ** ((key + LOWEST - 69) / 12)
    t = np.arange(seconds * RATE, dtype=np.float32) / RATE
    tone = np.zeros_like(t)
    for k in range(1, 5):
        if k * pitch < RATE / 2:
            tone += np.sin(2 * np.pi * k * pitch * t) * np.exp(-1.5 * k * t) / k**1.5
    return tone


def find_soundfont() -> Path | None:
    """$LATFLOW_SOUNDFONT, or the first .sf2 or .sf3 in the usual folders."""
    given = os.environ.get("LATFLOW_SOUNDFONT")
    if given:
        if not Path(given).is_file():
            raise LatflowError(f"$LATFLOW_SOUNDFONT is {given!r}, which is no file")
        return Path(given)
    fonts = (font for folder in _SOUNDFONTS for font in sorted(Path(folder).glob("*.sf[23]")))
    return next(fonts, None)


def _fluidsynth(
    path: str | Path, roll: np.ndarray, steps: int, tempo: float, player: str, font: Path
) -> None:
    with tempfile.TemporaryDirectory() as folder, replacing(path) as partial:
        score = Path(folder) / "roll.mid"
        write_midi(score, roll, steps, tempo)
        command = [player, "-ni", "-g", "0.6", "-r", "44100", "-F", str(partial), str(font), str(score)]
        subprocess.run(command, check=True, capture_output=True, timeout=600)
        if partial.stat().st_size == 0:
            raise OSError("it wrote nothing")


def _checked(roll: Any) -> np.ndarray:
    roll = roll_of(roll)
    if not len(roll):
        raise LatflowError("a roll without time steps cannot be drawn or played")
    return roll
