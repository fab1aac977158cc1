"""A shell completes commands and options, and says what is missing where it cannot."""

import subprocess
import sys

import pytest

from latflow.cli import COMMANDS, main


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_knows_every_command(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in COMMANDS:
        assert command.__name__.rpartition(".")[2] in script
    assert "--template" in script


def test_bash_completes_a_command(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    asked = "COMP_WORDS=(latflow eva); COMP_CWORD=1; _shtab_latflow; echo ${COMPREPLY[@]}"
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{asked}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["evaluate"], done.stderr


def test_without_shtab_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'latflow[shell]'" in capsys.readouterr().err
