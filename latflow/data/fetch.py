"""The named corpora: where they are looked for, and how they are downloaded and checked.

One layout serves a data folder and the cache: ptb/{train,valid,test}.txt, music/NAME.json.gz or
music/NAME.pickle, and text8 or text8.zip, enwik8 or enwik8.zip.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from latflow.data.files import readable
from latflow.errors import LatflowError


@dataclass(frozen=True)
class KnownFile:
    """A file whose every byte is known."""

    path: str
    """Its place in a data folder."""
    size: int
    sha256: str
    url: str = ""
    """Where it is to be had; empty if it is read where found but not offered for download."""


_PTB = (
    "https://raw.githubusercontent.com/harvardnlp/TextFlow/0eb8552ae5b370f69e440bca6c6c226b1734c1ba/data/ptb/"
)
_MUSIC = (
    "https://raw.githubusercontent.com/pyro-ppl/datasets/a32915c210878a1d4a36adcdc7d3448f89d5e4ee/polyphonic/"
)
_WIKI = "http://mattmahoney.net/dc/"


def _ptb(split: str, size: int, sha256: str) -> KnownFile:
    return KnownFile(f"ptb/{split}.txt", size, sha256, f"{_PTB}{split}.txt")


def _music(stem: str, json: tuple[int, str], pickle: tuple[int, str]) -> tuple[tuple[KnownFile, ...], ...]:
    return (
        (KnownFile(f"music/{stem}.json.gz", *json),),
        (KnownFile(f"music/{stem}.pickle", *pickle, url=f"{_MUSIC}{stem}.pickle"),),
    )


def _wiki(name: str, plain: str, archive: tuple[int, str]) -> tuple[tuple[KnownFile, ...], ...]:
    return (
        (KnownFile(name, 100_000_000, plain),),
        (KnownFile(f"{name}.zip", *archive, url=f"{_WIKI}{name}.zip"),),
    )


CORPORA: dict[str, tuple[tuple[KnownFile, ...], ...]] = {
    "ptb": (
        (
            _ptb("train", 5101618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
            _ptb("valid", 399782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
            _ptb("test", 449945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
        ),
    ),
    "jsb": _music(
        "jsb_chorales",
        (41967, "13bc4b1b7ecd5686838d7e6775658abe0a9262d7878d66692f0b9dc7597e0079"),
        (2051809, "69dc4c3e52800959ac0ab3b82aa3e5f55285ce64f1705acb3e3a8ef77a5c051c"),
    ),
    "nottingham": _music(
        "nottingham",
        (137163, "1012d4494748c4ddfeafca20396b4fa14e1eeb8ad7a4718634553c7746c381ba"),
        (24328483, "c00cd14b74137a28bf0b5703b47833523069e68073ecc1bd3c3e8bf4efb1c67f"),
    ),
    "piano-midi": _music(
        "piano_midi",
        (132968, "9597f282d82f98c26075d1f654eb59d6c5b102f0e44686a885f1e3a13ce4316b"),
        (7413484, "273d593b13d9a348410d261c0223d47523e2a9b41702137aaab5922242518296"),
    ),
    "musedata": _music(
        "muse_data",
        (626659, "958cc1007a0222872132fd2138ea2969fbfe2cef3a1a42718e606c9d96bfac7a"),
        (31533329, "b109ebdb74b57c6cc245b31af0e19ac52c7ff1673ffb2ae5d1225dba60d6d3ec"),
    ),
    "text8": _wiki(
        "text8",
        "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7",
        (31344016, "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232"),
    ),
    "enwik8": _wiki(
        "enwik8",
        "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8",
        (36445475, "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc"),
    ),
}
"""For each corpus the sets of files that hold it, any one of which will do. The last is the one to
download.
"""


def cache_folder() -> Path:
    """Where downloads are kept: the system's cache folder for this user."""
    import pooch

    return Path(pooch.os_cache("latflow"))


def folders(data_dir: str | None) -> list[Path]:
    """Where a corpus is looked for, in this order: --data-dir, $LATFLOW_DATA, the cache folder."""
    given = {"--data-dir": data_dir, "$LATFLOW_DATA": os.environ.get("LATFLOW_DATA")}
    for option, folder in given.items():
        if folder and not Path(folder).is_dir():
            raise LatflowError(f"{option} is {folder!r}, which is no folder")
    return [Path(folder) for folder in given.values() if folder] + [cache_folder()]


def find(name: str, data_dir: str | None = None, verify: bool = True) -> list[Path] | None:
    """The files of a corpus where they lie, checked unless told not to; None if they are nowhere."""
    cache = cache_folder()
    for folder in folders(data_dir):
        for files in CORPORA[name]:
            paths = [folder / file.path for file in files]
            with readable(folder):
                there = [path.exists() for path in paths]
            if all(there):
                for path, file in zip(paths, files, strict=True):
                    if verify:
                        check(path, file)
                return paths
            if any(there) and folder != cache:  # in the cache a download stopped half-way, and resumes
                raise LatflowError(f"{paths[there.index(False)]} is missing beside the other files of {name}")
    return None


def find_or_download(name: str, data_dir: str | None = None) -> list[Path]:
    """The files of a corpus, downloaded into the cache folder if they are nowhere else."""
    return find(name, data_dir) or download(name, cache_folder())


def check(path: Path, file: KnownFile) -> None:
    """Raise unless the file is the known one, byte for byte: otherwise its numbers could not be compared."""
    with readable(path), path.open("rb") as stream:
        size = path.stat().st_size
        digest = hashlib.sha256()
        while block := stream.read(1 << 16):
            digest.update(block)
    if digest.hexdigest() == file.sha256:
        return
    fault = f"it is cut off, {size} of {file.size} bytes" if size < file.size else "its sha256 differs"
    cure = f"get it from {file.url}" if file.url else "remove it and run `latflow data fetch`"
    raise LatflowError(f"{path} is not the known file: {fault}, {file.sha256} is expected; {cure}")


def download(name: str, folder: Path) -> list[Path]:
    """Download a corpus into a folder: each file under a temporary name until it is whole and its sha256 is
    right.
    """
    import pooch

    pooch.get_logger().setLevel("WARNING")
    paths = []
    for file in CORPORA[name][-1]:
        path = folder / file.path
        paths.append(path)
        if path.exists():
            check(path, file)
            continue
        with _Bar(path.name) as bar:
            downloader: Any = pooch.HTTPDownloader(progressbar=cast(Any, bar), timeout=30)
            try:
                pooch.retrieve(
                    file.url, f"sha256:{file.sha256}", path.name, path.parent, downloader=downloader
                )
            except (OSError, ValueError) as error:
                refusal = getattr(error, "response", None)  # a 404's page, unread, would keep its socket open
                if refusal is not None:
                    refusal.close()
                raise LatflowError(
                    f"could not download {file.url}: {_reason(error)}; get it some other way and put it at "
                    f"{path}, or point --data-dir or $LATFLOW_DATA at a folder that holds {file.path}"
                ) from None
    return paths


def _reason(error: Exception) -> str:
    """What went wrong, in a few words: the libraries' own messages are paragraphs."""
    if isinstance(error, ValueError) and "hash" in str(error):
        return "wrong checksum"
    kind = type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"the server answers {status}"
    if kind in ("ChunkedEncodingError", "IncompleteRead", "ProtocolError"):
        return "cut off"
    if "Timeout" in kind:
        return "no answer in time"
    if isinstance(error, (PermissionError, NotADirectoryError, FileExistsError)):
        return f"{error.filename}: {error.strerror}"
    return "no connection" if "Connection" in kind or "Proxy" in kind or "SSL" in kind else f"{kind}: {error}"


class _Bar:
    """rich's progress bar behind the four calls that pooch makes of one; silent unless on a terminal."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns: tuple[Any, ...] = (TextColumn(label), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())
        self._task = self._progress.add_task(label, total=None)
        self.total = 0

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, count: int) -> None:
        self._progress.update(self._task, advance=count, total=self.total or None)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.refresh()
