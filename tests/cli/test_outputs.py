"""Where output goes and how it fails: devices, pipes, full disks, odd encodings, signals. One line, no traceback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import latflow
from latflow import data
from latflow.__main__ import run as command
from latflow.cli import main, streams
from latflow.data.files import check_writable, output, writing, written_through
from latflow.errors import LatflowError
from latflow.stops import STOPS
from latflow.training import Run, resume, stored, train
from latflow.training.fit import _created
from latflow.training.run import TRAINER
from latflow.use.sample import sample, sampled
from tests.training.tiny import ROOT, config, environment, run_python

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="devices and pipes of Unix")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    made, _ = train(config("hmm-lstm", train__epochs=1), tmp_path_factory.mktemp("runs") / "run")
    return made


def shell(line: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line.replace("latflow", f"{sys.executable} -m latflow")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(**more),
        timeout=300,
        check=False,
    )


def test_a_pipe_is_written_to_and_stays_one(trained, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    assert main(["sample", str(trained.folder), "-n", "3", "--out", str(pipe)]) == 0
    reader.join()
    assert len(got[0].splitlines()) == 3
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_links_stay_links_and_files_are_replaced_whole(tmp_path):
    (tmp_path / "file").write_text("before")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(ZeroDivisionError), output(tmp_path / "link") as stream:
        stream.write(f"half {1 / 0}")
    assert (tmp_path / "file").read_text() == "before"
    with output(tmp_path / "link") as stream:
        stream.write("after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "after"
    (tmp_path / "itself").symlink_to("itself")
    for write in (lambda path: writing(path).__enter__(), check_writable):
        with pytest.raises(LatflowError, match="itself cannot be written: it is a link to itself"):
            write(tmp_path / "itself")
    (tmp_path / "null").symlink_to(os.devnull)
    with writing(tmp_path / "null") as path:
        path.write_text("gone")
    assert (tmp_path / "null").is_symlink()
    assert written_through(tmp_path / "null")


def test_dash_is_standard_output(trained, capsys):
    assert main(["sample", str(trained.folder), "-n", "2"]) == 0
    plain = capsys.readouterr().out
    assert main(["sample", str(trained.folder), "-n", "2", "--out", "-"]) == 0
    assert capsys.readouterr().out == plain
    assert not os.path.exists("-")


def test_what_was_replaced_is_said(trained, tmp_path, capsys):
    out = str(tmp_path / "drawn.txt")
    for said in (out, f"{out} (replaced)"):
        assert main(["sample", str(trained.folder), "-n", "2", "--out", out]) == 0
        assert capsys.readouterr().out == f"{said}\n"


@pytest.mark.parametrize("command", [["sample"], ["score", "own.txt"]])
def test_an_unwritable_target_is_found_before_the_work(trained, tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.txt").write_text("kate son\n")
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(Run, "model", lambda *_: pytest.fail("the work began"))
    for out, why in (("file/below", "is not a folder"), (".", "is a folder; give the name of a file")):
        assert main([command[0], str(trained.folder), *command[1:], "--out", out]) == 2
        assert why in capsys.readouterr().err
    check_writable("-")
    with pytest.raises(LatflowError, match="is not a folder"):
        check_writable(tmp_path / "file" / "below" / "deep")


def test_a_stream_of_samples_is_the_list_of_them(trained):
    """In several sittings, with other random numbers drawn in between."""
    model = trained.model()
    wanted = sample(model, 10, batch_size=3, seed=4)
    found = []
    for x in sampled(model, 10, batch_size=3, seed=4):
        found.append(x)
        sample(model, 1, seed=9)
    assert [x.tolist() for x in found] == [x.tolist() for x in wanted]


def test_the_first_of_a_billion_comes_at_once(trained):
    ended = shell(f"latflow sample {trained.folder} -n 1000000000 --length 4 | head -n 2")
    assert len(ended.stdout.splitlines()) == 2
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_a_terminal_that_lacks_characters_gets_the_nearest(trained, encoding):
    ended = subprocess.run(
        [sys.executable, "-m", "latflow", "evaluate", str(trained.folder), "--samples", "1"],
        capture_output=True,
        env=environment(PYTHONIOENCODING=encoding),
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout.decode(encoding)
    assert ("-Σ[log" if encoding == "utf-8" else "-sum[log") in said
    assert (" +- " if encoding == "ascii" else " ± ") in said


def test_json_stays_json_in_ascii(trained, tmp_path):
    own = tmp_path / "own.txt"
    own.write_text("kate é\U0001f600\nkate son\n", encoding="utf-8")
    ended = run_python(
        "-m", "latflow", "score", str(trained.folder), str(own), PYTHONIOENCODING="ascii", PYTHONUTF8="0"
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[0])["sequence"] == "kate é\U0001f600"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize(
    ("redirect", "code", "message"),
    [
        ("> /dev/full", 2, "standard output cannot be written: No space left on device"),
        (">&-", 2, "standard output cannot be written: it is closed"),
        ("2>&- | head -n 0", 0, ""),
    ],
)
def test_an_output_that_fails_is_one_line(redirect, code, message):
    ended = shell(f"latflow presets {redirect}")
    assert ended.returncode == code
    assert message in ended.stderr
    assert ended.stderr.count("\n") <= 1


@pytest.fixture
def full():
    """A stream to a device that is always full."""
    if not os.path.exists("/dev/full"):
        pytest.skip("no device that is always full")
    with open("/dev/full", "w") as stream:
        yield stream


def test_the_version_too_needs_an_output(full, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", full)
    assert main(["--version"]) == 2
    assert capsys.readouterr().err == "latflow: standard output cannot be written: No space left on device\n"


def test_standard_error_that_fails_stops_nothing(full, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", full)
    monkeypatch.setattr(sys, "__stderr__", full)
    assert main(["sample", "nosuch"]) == 2
    words = ["--prefix", "The", "--length", "5", "--particles", "5"]  # tells of its particles there
    assert main(["sample", "pydoc", "-n", "2", *words]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_signal_that_is_ignored_stays_so(monkeypatch):
    """`nohup`, and the & of a script."""
    monkeypatch.setattr("latflow.cli.main", lambda: 0)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPS}
    try:
        with streams.signals() as came:
            for number in STOPS:
                os.kill(os.getpid(), number)
        assert not came
        with pytest.raises(SystemExit):
            command()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_second_signal_ends_it_without_a_traceback():
    """The first is being obeyed."""
    ended = run_python(
        "-c",
        "import os, signal, sys, latflow.cli as cli\n"
        "def again(*_): os.kill(os.getpid(), signal.SIGINT)\n"
        "cli._run = again\n"
        "class Terminal:\n"
        "    write = flush = again\n"
        "sys.stderr = Terminal()\n"
        "cli.main([])",
    )
    assert ended.returncode == -signal.SIGINT
    assert not ended.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_is_one_line_at_any_moment(trained, number, code):
    for seconds in (0.3, 1.5, 4.0):
        words = [sys.executable, "-m", "latflow", "sample", str(trained.folder), "-n", "1000000000"]
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
        )
        time.sleep(seconds)
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
        assert "Traceback" not in said
        # In the first moments Python itself starts, and the signal ends it.
        assert process.returncode in (code, -number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_kill_of_a_training_has_its_own_code(tmp_path, monkeypatch, number):
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("nohup")
    from latflow.training.loop import Trainer

    update = Trainer._update

    def killed(self, group):
        os.kill(os.getpid(), number)
        return update(self, group)

    monkeypatch.setattr(Trainer, "_update", killed)
    words = [f"--{k}={v}" for k, v in (("data.train_size", 20), ("data.eval_size", 5), ("train.epochs", 1))]
    assert main(["train", "hmm-lstm", "--quiet", "--run", str(tmp_path / "run"), *words]) == 128 + number
    assert Run.open(tmp_path / "run").has(TRAINER)


def test_export_to_a_full_disk_leaves_nothing(trained, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stored, "save_file", full)
    assert main(["export", str(trained.folder), str(tmp_path / "shared")]) == 2
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "resume" not in said
    assert not (tmp_path / "shared").exists()


def test_exports_at_once_to_one_folder(trained, tmp_path, monkeypatch, capsys):
    """It appears with its weights, and the other is told so."""
    write, shared = stored.save_file, tmp_path / "shared"

    def slow(*words):
        assert not shared.exists()
        with monkeypatch.context() as patched:
            patched.setattr(stored, "save_file", write)
            assert main(["export", str(trained.folder), str(shared)]) == 0
        write(*words)

    monkeypatch.setattr(stored, "save_file", slow)
    assert main(["export", str(trained.folder), str(shared)]) == 2
    assert capsys.readouterr().err == f"latflow: {shared} exists already; name a folder that does not\n"
    assert Run.open(shared).alone
    assert [path.name for path in tmp_path.iterdir()] == ["shared"]


def test_a_run_whose_folder_is_gone_says_so(trained, tmp_path):
    made = Run.open(shutil.copytree(trained.folder, tmp_path / "run"))
    shutil.rmtree(made.folder)
    for write in (lambda: made.append({"kind": "step"}), lambda: made.save(TRAINER, {}, {})):
        with pytest.raises(LatflowError, match=r"the run's folder is gone") as caught:
            write()
        assert "--resume" not in str(caught.value)


def test_best_weights_that_are_gone_or_damaged_are_missed(trained, tmp_path):
    folder = shutil.copytree(trained.folder, tmp_path / "run")
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(LatflowError, match=r"model\.safetensors is damaged.*--weights last"):
        resume(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(LatflowError, match=r"no model\.safetensors, its best weights, any more"):
        resume(folder)
    with pytest.raises(LatflowError, match=r"no model\.safetensors, its best weights, any more"):
        latflow.load(folder)
    assert latflow.load(folder, "last").spec == trained.spec


def test_runs_that_start_at_once_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = config()
    corpus = data.load(settings.data)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: _created(None, settings, corpus, "some", "x").folder, range(8)))
    assert len(set(made)) == 8
    assert len(list((tmp_path / "runs").iterdir())) == 8
