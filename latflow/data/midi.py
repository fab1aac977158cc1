"""MIDI files <-> piano rolls.

What is read, and how (`read_midi`):

- Time. A step is a fraction of a beat (`steps_per_beat`), whatever the tempo; or, with `steps_per_second`,
  of a second, and tempo changes count. Starts and ends are rounded to the nearest step (halves up); a note
  that would round to nothing gets one step. The roll ends with the last end-of-track mark, or the last note
  if that is later.
- Notes. All tracks and channels sound together. The sustain pedal (controller 64) holds a channel's notes
  until it is released; "all notes off" and "all sound off" (123, 120) end them. A note-on with velocity 0 is
  a note-off. A note struck twice is ended first by the first note-off. A note never ended lasts to the end
  of the file.
- Repeats. A roll knows only whether a note sounds, so a note struck again while or just as it ends is one held note
  in it. With `articulate` the step before each such strike is silent, unless the strike before it is that step: notes
  repeated every step need a finer grid.
- Dropped: the percussion channel (10), where numbers are drums and not pitches, silently; notes outside
  21..108, and notes that end in the tick they begin in, with a remark.
- Refused: files of type 2 (independent patterns without a common time), SMPTE time, damage of any kind, and
  files that would make more than 200,000 steps.

What is written (`write_midi`) reads back as the same roll, bit for bit: a note in consecutive steps is one
held note, and the end-of-track mark stands at the end of the last step, be it silent.
"""

from __future__ import annotations

import io
import struct
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import mido
import numpy as np

from latflow.config import DataConfig
from latflow.data.base import LOWEST, NOTES, Corpus, Sequences, roll_of
from latflow.data.files import read_whole, readable, writing
from latflow.data.labels import folder_label, numbered
from latflow.data.own import assemble, keep_lengths, split_files
from latflow.errors import LatflowError, LatflowWarning
from latflow.progress import track

SLOWEST = 4.0
"""Beats a minute: a MIDI file counts microseconds a beat in 24 bits."""
DRUMS = 9
"""Channel 10 to people."""
SUSTAIN, SOUND_OFF, NOTES_OFF = 64, 120, 123
MOST_STEPS = 200_000


def load_midi(path: Path, config: DataConfig) -> Corpus:
    """A user's folder of .mid files. Those that cannot be read or have no notes are left out and named."""
    with readable(path):
        if path.exists() and not path.is_dir():
            raise LatflowError(f"{path}: expected a folder of .mid files")
    check_grid(config.steps_per_beat, config.steps_per_second)
    files = split_files(path, (".mid", ".midi"))
    refused: list[str] = []
    remarks: list[str] = []
    parts: dict[str, Sequences] = {}
    labels: dict[str, list[str]] = {part: [] for part in files}

    def rolls(part: str, group: list[Path]) -> Iterator[np.ndarray]:
        for file in track(group, "reading MIDI files"):
            try:
                roll, said = _read(file, config.steps_per_beat, config.steps_per_second, config.articulate)
                if not roll.any():
                    raise LatflowError(f"{file}: no notes between {LOWEST} and {LOWEST + NOTES - 1}")
            except LatflowError as error:
                refused.append(str(error))
            else:
                remarks.extend(said)
                if config.labels == "folder":
                    labels[part].append(folder_label(file, path, part))
                yield roll

    for part, group in files.items():
        parts[part] = Sequences.of_rolls(rolls(part, group))  # one roll in memory at a time
    total = sum(map(len, files.values()))
    if len(refused) == total:
        raise LatflowError(f"{path}: none of {total} MIDI files can be used; {refused[0]}")
    for what, said in (("files left out", refused), ("remarks", remarks)):
        if said:
            more = f"; and {len(said) - 3} more" if len(said) > 3 else ""
            warnings.warn(f"{len(said)} {what}: {'; '.join(said[:3])}{more}", LatflowWarning, stacklevel=2)
    names, numbers = numbered(labels)
    for part, found in parts.items():
        if config.labels == "folder":
            found = found.labelled(numbers[part])
        parts[part] = found.select(np.flatnonzero(keep_lengths(found.lengths, config, config.name)))
    corpus = assemble(config, "music", parts, (), files, names)
    return replace(corpus, left_out=tuple(refused))


def check_grid(steps_per_beat: int, steps_per_second: float | None) -> None:
    """A grid that notes can be put on."""
    if not 1 <= steps_per_beat <= 96:
        raise LatflowError(f"steps_per_beat is {steps_per_beat}; accepted: 1 to 96")
    if steps_per_second is not None and not 0 < steps_per_second <= 1000:
        raise LatflowError(f"steps_per_second is {steps_per_second}; accepted: above 0, up to 1000")


def check_tempo(beats_per_minute: float) -> None:
    """A tempo that a file can say."""
    if not SLOWEST <= beats_per_minute <= 10_000:
        raise LatflowError(f"{beats_per_minute:g} beats a minute; accepted: {SLOWEST:g} to 10000")


def read_midi(
    path: str | Path,
    steps_per_beat: int = 4,
    steps_per_second: float | None = None,
    articulate: bool = False,
) -> np.ndarray:
    """A .mid file as a (T, 88) uint8 roll, T >= 1; see the head of this module for what becomes of what."""
    check_grid(steps_per_beat, steps_per_second)
    roll, remarks = _read(Path(path), steps_per_beat, steps_per_second, articulate)
    for remark in remarks:
        warnings.warn(remark, LatflowWarning, stacklevel=2)
    return roll


@dataclass(frozen=True)
class _Event:
    tick: int
    track: int
    message: Any


def _read(
    path: Path, steps_per_beat: int, steps_per_second: float | None, articulate: bool
) -> tuple[np.ndarray, list[str]]:
    """The roll, and remarks on what was dropped."""
    return parse_midi(read_whole(path), path, steps_per_beat, steps_per_second, articulate)


def parse_midi(
    data: bytes,
    path: str | Path,
    steps_per_beat: int = 4,
    steps_per_second: float | None = None,
    articulate: bool = False,
) -> tuple[np.ndarray, list[str]]:
    """The bytes of a .mid file as `read_midi` reads them, and remarks on what was dropped; `path` is its name in
    messages."""
    division, events = _events(data, path)
    notes, remarks = _notes(events, path)
    last = max((event.tick for event in events), default=0)
    if steps_per_second is None:
        to_step = _beats(division, steps_per_beat)
    else:
        to_step = _seconds(events, division, Fraction(steps_per_second))
    length = max(1, _round(to_step(last)))
    if length > MOST_STEPS:
        raise LatflowError(f"{path}: {length} steps on this grid, more than {MOST_STEPS}; try a coarser one")
    spans = [(note, _round(to_step(on)), _round(to_step(off))) for note, on, off in notes]
    length = max([length, *(max(off, on + 1) for _, on, off in spans)])
    roll = np.zeros((length, NOTES), np.uint8)
    for note, on, off in spans:
        roll[on : max(off, on + 1), note - LOWEST] = 1
    if articulate:
        struck = {(on, note - LOWEST) for note, on, _ in spans}
        for step, key in struck:  # the step before the first has none to end
            if step and (step - 1, key) not in struck:
                roll[step - 1, key] = 0
    return roll, remarks


def _round(steps: Fraction) -> int:
    return (steps + Fraction(1, 2)).__floor__()


def _chunks(data: bytes, path: str | Path) -> Iterator[bytes]:
    """The bodies of the header and track chunks; other kinds are skipped, as the standard asks."""
    at = number = 0
    while at < len(data):
        kind, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "big")
        body = data[at + 8 : at + 8 + size]
        if at == 0 and kind != b"MThd":
            raise LatflowError(f"{path}: not a MIDI file, it does not begin with MThd")
        if len(data) < at + 8 or len(body) < size:
            what = f"track {number}" if number else "the header"
            raise LatflowError(f"{path}: {what} is cut off, {len(body)} of {size} bytes are there")
        if kind in (b"MThd", b"MTrk"):
            yield body
            number += 1
        at += 8 + size


def _events(data: bytes, path: str | Path) -> tuple[int, list[_Event]]:
    """Ticks per beat, and the events of all tracks in the order they sound, with ticks from the start."""
    if not data:
        raise LatflowError(f"{path}: empty file")
    header, *tracks = _chunks(data, path)
    if len(header) < 6:
        raise LatflowError(f"{path}: the header has {len(header)} bytes instead of 6")
    kind, count, division = struct.unpack(">hhh", header[:6])
    if kind not in (0, 1):
        what = "independent patterns without a common time" if kind == 2 else "unknown"
        raise LatflowError(f"{path}: MIDI type {kind} ({what}); types 0 and 1 are read")
    if division == 0:
        raise LatflowError(f"{path}: a beat of 0 ticks, so its notes have no time")
    if division < 0:
        raise LatflowError(f"{path}: time in SMPTE frames; only ticks per beat are read")
    if len(tracks) < count:
        raise LatflowError(f"{path}: cut off, track {len(tracks) + 1} of {count} is missing")
    events = []
    for number, body in enumerate(tracks, 1):
        # One track at a time, so that mido's complaint can be laid at its door.
        alone = struct.pack(">4sIhhh4sI", b"MThd", 6, 0, 1, division, b"MTrk", len(body)) + body
        try:
            messages = mido.MidiFile(file=io.BytesIO(alone)).tracks[0]
        except Exception as error:  # mido raises whatever its parsing runs into
            reason = "cut off" if isinstance(error, (EOFError, IndexError)) else repr(error)
            raise LatflowError(f"{path}: track {number} is damaged ({reason})") from None
        tick = 0
        for message in messages:
            tick += message.time
            events.append(_Event(tick, number, message))
    return division, sorted(events, key=lambda event: event.tick)  # stable: a track's own order stays


def _beats(division: int, rate: int) -> Callable[[int], Fraction]:
    """Ticks -> steps of 1 / rate beats."""
    return lambda tick: Fraction(tick * rate, division)


def _seconds(events: list[_Event], division: int, rate: Fraction) -> Callable[[int], Fraction]:
    """Ticks -> steps of 1 / rate seconds through the tempo changes, from 120 beats a minute on."""
    ticks, times, tempos = [0], [Fraction(0)], [500_000]
    for event in events:
        if event.message.type == "set_tempo":
            gone = Fraction((event.tick - ticks[-1]) * tempos[-1], division * 1_000_000)
            ticks.append(event.tick)
            times.append(times[-1] + gone)
            tempos.append(event.message.tempo)
    starts = np.array(ticks)

    def to_step(tick: int) -> Fraction:
        i = int(np.searchsorted(starts, tick, "right")) - 1
        return (times[i] + Fraction((tick - ticks[i]) * tempos[i], division * 1_000_000)) * rate

    return to_step


def _notes(events: list[_Event], path: str | Path) -> tuple[list[tuple[int, int, int]], list[str]]:
    """(note, tick on, tick off) of what sounds, and remarks on what was dropped."""
    found: list[tuple[int, int, int]] = []
    dropped: dict[str, Counter[int]] = {"outside 21..108": Counter(), "of zero length": Counter()}
    struck: dict[tuple[int, int, int], deque[int]] = {}  # (track, channel, note): ticks, oldest first
    held: dict[int, list[tuple[int, int]]] = {}  # channel: notes that the pedal holds, and since when
    pedal: set[int] = set()

    def release(channel: int, tick: int) -> None:
        found.extend((note, on, tick) for note, on in held.pop(channel, []))

    for event in events:
        message, tick = event.message, event.tick
        kind = message.type
        if kind not in ("note_on", "note_off", "control_change") or message.channel == DRUMS:
            continue
        channel = message.channel
        if kind == "control_change":
            if message.control == SUSTAIN and message.value >= 64:
                pedal.add(channel)
            elif message.control == SUSTAIN:
                pedal.discard(channel)
                release(channel, tick)
            elif message.control in (SOUND_OFF, NOTES_OFF):
                for key in [key for key in struck if key[1] == channel]:
                    found.extend((key[2], on, tick) for on in struck.pop(key))
                release(channel, tick)
            continue
        key = (event.track, channel, message.note)
        if kind == "note_on" and message.velocity > 0:
            if not LOWEST <= message.note < LOWEST + NOTES:
                dropped["outside 21..108"][event.track] += 1
            else:
                struck.setdefault(key, deque()).append(tick)
        elif struck.get(key):
            on = struck[key].popleft()
            if channel in pedal:
                held.setdefault(channel, []).append((message.note, on))
            elif on == tick:
                dropped["of zero length"][event.track] += 1
            else:
                found.append((message.note, on, tick))
    end = max((event.tick for event in events), default=0)
    for (_, _, note), ticks in struck.items():
        found.extend((note, on, end) for on in ticks)
    for channel in list(held):
        release(channel, end)
    remarks = [
        f"{path}: {count} notes {what} dropped (track {number})"
        for what, tracks in dropped.items()
        for number, count in sorted(tracks.items())
    ]
    return found, remarks


def write_midi(path: str | Path, roll: Any, steps_per_beat: int = 4, beats_per_minute: float = 120) -> None:
    """Write a roll (T, 88), or lists of MIDI notes; `read_midi` on the same grid gives it back exactly."""
    check_grid(steps_per_beat, None)
    check_tempo(beats_per_minute)
    roll = roll_of(roll)
    if not len(roll):
        raise LatflowError("a roll without time steps cannot be written")
    per_step = 480 // steps_per_beat if 480 % steps_per_beat == 0 else 24
    track = mido.MidiTrack()
    track.append(mido.MetaMessage("set_tempo", tempo=mido.bpm2tempo(beats_per_minute)))
    edges = np.diff(np.pad(roll.astype(np.int8), ((1, 1), (0, 0))), axis=0)  # (T + 1, 88): 1 starts, -1 ends
    last = 0
    for t in np.flatnonzero(edges.any(axis=1)).tolist():
        for kind, sign in (("note_off", -1), ("note_on", 1)):
            for key in np.flatnonzero(edges[t] == sign).tolist():
                time, last = (t - last) * per_step, t
                track.append(mido.Message(kind, note=key + LOWEST, velocity=80 if sign > 0 else 0, time=time))
    track.append(mido.MetaMessage("end_of_track", time=(len(roll) - last) * per_step))
    file = mido.MidiFile(type=0, ticks_per_beat=per_step * steps_per_beat)
    file.tracks.append(track)
    with writing(path) as partial:
        file.save(partial)
