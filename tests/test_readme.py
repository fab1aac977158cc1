"""The README's Python runs as it stands, and its commands exist."""

import re
import shlex
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_first_screen_gives_the_two_commands_and_a_picture():
    first = "\n".join(README.splitlines()[:20])
    assert "make demo" in first
    assert "make test" in first
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", first)
    assert pictures
    assert all((Path(__file__).parents[1] / picture).is_file() for picture in pictures)


def test_every_file_it_links_to_is_there():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (Path(__file__).parents[1] / target).exists(), target


@pytest.mark.parametrize("block", BLOCKS, ids=["train and sample", "a flow alone"])
def test_python_runs(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
    if "print" in block:
        assert len(capsys.readouterr().out.splitlines()) >= 4


def test_what_needs_no_training_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    from latflow.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.txt").write_text("The value of the expression is returned.\n")
    docs = (Path(__file__).parents[1] / "docs" / "training.md").read_text(encoding="utf-8")
    section = docs.split("## Try it without training")[1].split("\n## ")[0]
    commands = re.findall(r"^    latflow (.+)$", section, re.MULTILINE)
    commands = [command for command in commands if command.split()[0] in ("sample", "plot", "score")]
    assert len(commands) >= 3
    commands += re.findall(r"^    latflow (sample pydoc --template .+)$", README, re.MULTILINE)
    for command in commands:
        assert main(shlex.split(command, comments=True)) == 0, capsys.readouterr().err
    assert {"jsb-sample.mid", "jsb-sample.wav", "jsb-sample.png", "pydoc-2d-prior.png"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_training_on_a_file_of_ones_own_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    """The third thing to try, to its end; it stops by itself."""
    from latflow.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.txt").write_text("\n".join("abcdefgh"), encoding="utf-8")  # nothing to learn
    (command,) = re.findall(
        r"^    latflow (train text:.+)$", "\n".join(README.splitlines()[:30]), re.MULTILINE
    )
    assert main(shlex.split(command, comments=True)) == 0, capsys.readouterr().err
    (run,) = (tmp_path / "runs").iterdir()
    assert f"next: latflow evaluate runs/{run.name}" in capsys.readouterr().out


def test_commands_exist(capsys):
    from latflow.cli import main

    for command in sorted(set(re.findall(r"^    latflow (\w+)", README, re.MULTILINE))):
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0, command
        assert command in capsys.readouterr().out
