"""Where corpora are found, and downloads from a server that may misbehave."""

from __future__ import annotations

import gc
import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from latflow.config import DataConfig
from latflow.data import fetch, load
from latflow.data.fetch import KnownFile
from latflow.data.stats import measure
from latflow.data.wiki import load_wiki
from latflow.errors import LatflowError

CONTENT = {split: f"the {split} set\nhas two lines\n".encode() * 400 for split in ("train", "valid", "test")}


class Server(BaseHTTPRequestHandler):
    """/ok/NAME is whole, /cut/NAME ends early, /wrong/NAME is another file; anything else is not there."""

    requests: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.requests.append(self.path)
        _, way, name = self.path.split("/")
        body = CONTENT.get(name.removesuffix(".txt"), b"")
        if way not in ("ok", "cut", "wrong"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write({"ok": body, "cut": body[:1000], "wrong": b"?" * len(body)}[way])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    Server.requests.clear()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
    gc.collect()  # a socket left open is an error here, not in some later test


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(fetch, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("LATFLOW_DATA", raising=False)
    return tmp_path / "cache"


def offer(monkeypatch: pytest.MonkeyPatch, base: str) -> None:
    """Say that ptb is to be had at `base`."""
    files = tuple(
        KnownFile(f"ptb/{split}.txt", len(body), hashlib.sha256(body).hexdigest(), f"{base}/{split}.txt")
        for split, body in CONTENT.items()
    )
    monkeypatch.setitem(fetch.CORPORA, "ptb", (files,))


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_download_is_whole_checked_and_kept(
    address: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, f"{address}/ok")
    corpus = load(DataConfig("ptb", smooth_lengths=True))
    assert len(corpus.splits["train"]) == 800
    assert files_in(cache) == ["test.txt", "train.txt", "valid.txt"]
    assert (cache / "ptb" / "train.txt").read_bytes() == CONTENT["train"]
    assert len(Server.requests) == 3
    load(DataConfig("ptb", smooth_lengths=True))
    assert len(Server.requests) == 3  # the second time it is there


def test_a_download_that_stopped_between_files_resumes(
    address: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, f"{address}/ok")
    (cache / "ptb").mkdir(parents=True)
    (cache / "ptb" / "train.txt").write_bytes(CONTENT["train"])
    fetch.find_or_download("ptb")
    assert Server.requests == ["/ok/valid.txt", "/ok/test.txt"]


@pytest.mark.parametrize(
    ("way", "said"), [("cut", "cut off"), ("wrong", "wrong checksum"), ("gone", "the server answers 404")]
)
def test_a_bad_download_says_what_to_do_and_leaves_nothing(
    address: str, cache: Path, monkeypatch: pytest.MonkeyPatch, way: str, said: str
) -> None:
    offer(monkeypatch, f"{address}/{way}")
    with pytest.raises(LatflowError) as caught:
        load(DataConfig("ptb"))
    message = str(caught.value)
    assert f"could not download {address}/{way}/train.txt: {said}" in message
    assert f"put it at {cache / 'ptb' / 'train.txt'}" in message
    assert "--data-dir or $LATFLOW_DATA" in message
    assert "\n" not in message
    assert files_in(cache) == []


def test_no_network_says_what_to_do(address: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "http://127.0.0.1:9")  # the discard port, where nobody listens
    with pytest.raises(LatflowError, match=r"127\.0\.0\.1:9/train\.txt: no connection; get it .* put it at "):
        load(DataConfig("ptb"))
    assert files_in(cache) == []


def test_a_cache_that_cannot_be_written_is_named(
    address: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, f"{address}/ok")
    cache.write_text("a file where the folder should be")
    with pytest.raises(LatflowError, match=r"could not download .*cache"):
        load(DataConfig("ptb"))


def test_the_bar_counts_bytes_on_a_terminal(
    address: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    offer(monkeypatch, f"{address}/ok")
    fetch.download("ptb", cache)
    shown = screen.getvalue()
    for split, body in CONTENT.items():
        assert f"{split}.txt" in shown
        assert f"{len(body) / 1000:.1f}/{len(body) / 1000:.1f} kB" in shown


def test_folders_are_searched_in_order(
    address: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, f"{address}/ok")
    places = {name: tmp_path / name for name in ("given", "environment")}
    for place in places.values():
        place.mkdir()
    for place in (cache, *places.values()):
        fetch.download("ptb", place)
    monkeypatch.setenv("LATFLOW_DATA", str(places["environment"]))
    where = lambda option: (fetch.find("ptb", option) or [Path()])[0].parent.parent  # noqa: E731
    assert where(str(places["given"])) == places["given"]
    assert where(None) == places["environment"]
    for split in CONTENT:
        (places["given"] / "ptb" / f"{split}.txt").unlink()
    assert where(str(places["given"])) == places["environment"]
    monkeypatch.delenv("LATFLOW_DATA")
    assert where(None) == cache
    with pytest.raises(LatflowError, match=r"--data-dir is .* no folder"):
        fetch.find("ptb", str(tmp_path / "nowhere"))
    monkeypatch.setenv("LATFLOW_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(LatflowError, match=r"\$LATFLOW_DATA is .* no folder"):
        fetch.find("ptb")


def test_files_that_are_not_the_known_ones_are_refused(
    address: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, f"{address}/ok")
    fetch.download("ptb", tmp_path)
    path = tmp_path / "ptb" / "valid.txt"
    path.write_bytes(CONTENT["valid"][:100])
    with pytest.raises(LatflowError, match=rf"valid\.txt .* cut off, 100 of {len(CONTENT['valid'])} bytes"):
        load(DataConfig("ptb", data_dir=str(tmp_path)))
    path.write_bytes(CONTENT["train"])
    with pytest.raises(LatflowError, match=r"valid\.txt .* sha256 differs.*get it from http"):
        load(DataConfig("ptb", data_dir=str(tmp_path)))
    path.unlink()
    with pytest.raises(LatflowError, match=r"valid\.txt is missing beside"):
        load(DataConfig("ptb", data_dir=str(tmp_path)))


def test_the_addresses_are_pinned_to_a_commit_or_to_an_archive_that_never_changes() -> None:
    for alternatives in fetch.CORPORA.values():
        for file in alternatives[-1]:
            if not file.url.startswith("http://mattmahoney.net/dc/"):
                assert file.url.startswith("https://raw.githubusercontent.com/")
                assert len(file.url.split("/")[5]) == 40
            assert file.url.endswith(file.path.split("/")[-1])
            assert len(file.sha256) == 64


WIKI = {
    "text8": b" anarchism originated as a term of abuse" * 25,
    "enwik8": "<page> é ü \u2019 &amp;\n".encode() * 40,
}


def zipped(name: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name), WIKI[name])
    return stream.getvalue()


def offer_wiki(monkeypatch: pytest.MonkeyPatch, name: str, base: str) -> None:
    archive = zipped(name)
    monkeypatch.setitem(CONTENT, f"{name}.zip", archive)
    plain = KnownFile(name, len(WIKI[name]), hashlib.sha256(WIKI[name]).hexdigest())
    packed = KnownFile(f"{name}.zip", len(archive), hashlib.sha256(archive).hexdigest(), f"{base}/{name}.zip")
    monkeypatch.setitem(fetch.CORPORA, name, ((plain,), (packed,)))


@pytest.mark.parametrize("name", WIKI)
@pytest.mark.parametrize("chunk", [0, 7, 10**6])
def test_the_wikipedias_are_split_by_bytes_and_lose_none(
    address: str, cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, chunk: int
) -> None:
    offer_wiki(monkeypatch, name, f"{address}/ok")
    corpus = load(DataConfig(name, chunk=chunk, smooth_lengths=True))
    assert files_in(cache) == [f"{name}.zip"]
    spec, whole = corpus.spec, WIKI[name]
    assert spec.symbols == tuple(sorted(set(whole.decode("latin-1"))))
    assert (spec.kind, spec.unknown) == ("text", False)
    found = {s: "".join(map(spec.decode, x)).encode("latin-1") for s, x in corpus.splits.items()}
    assert b"".join(found.values()) == whole
    n = len(whole)
    assert [len(part) for part in found.values()] == [
        n * 90 // 100,
        n * 95 // 100 - n * 90 // 100,
        n - n * 95 // 100,
    ]
    for sequences in corpus.splits.values():
        assert set(sequences.lengths[:-1].tolist()) <= {chunk or 256}
        assert sequences.lengths[-1] <= (chunk or 256)


def test_the_known_sizes_give_the_splits_of_the_literature() -> None:
    for name in WIKI:
        size = fetch.CORPORA[name][0][0].size
        assert (size * 90 // 100, size * 95 // 100 - size * 90 // 100) == (90_000_000, 5_000_000)


def test_a_wikipedia_that_lies_there_unpacked_is_not_downloaded(
    address: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_wiki(monkeypatch, "text8", f"{address}/ok")
    there = tmp_path / "data" / "text8"
    there.parent.mkdir()
    there.write_bytes(WIKI["text8"])
    corpus = load(DataConfig("text8", data_dir=str(there.parent), chunk=5))
    assert corpus.files == (str(there),)
    assert Server.requests == []
    assert measure(DataConfig("text8", data_dir=str(there.parent), chunk=5))["data_bytes"] == 1000
    fetch.download("text8", cache)
    assert measure(DataConfig("text8", chunk=5))["data_bytes"] == 1000  # unpacked, not the archive's own size
    there.write_bytes(WIKI["text8"][::-1])
    with pytest.raises(LatflowError, match="sha256 differs"):
        load(DataConfig("text8", data_dir=str(there.parent)))
    with pytest.raises(LatflowError, match="not an archive that holds enwik8"):
        load_wiki("enwik8", cache / "text8.zip", DataConfig("enwik8"))
