"""Directories of runs: those of dead processes are removed, and nothing else ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.directories import (
    RunDirectory,
    remove_left,
    run_directory,
    socket_directory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Makes a directory with something in it, starts a child that inherits the lock if told so, and
#: waits.
PROGRAM = """
import subprocess, sys
from pathlib import Path
from millstream.directories import run_directory
made = run_directory(Path(sys.argv[1]))
(made.path / "folder").mkdir()
(made.path / "folder" / "graph").write_text("password")
if sys.argv[2] == "heir":
    child = subprocess.Popen(["cat"], stdin=0, stdout=2, pass_fds=(made.lock,))
    print(child.pid)
print(made.path, flush=True)
input()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def begin(kind: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), kind]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def read(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_what_a_killed_process_left_is_removed_and_what_others_have_is_not(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    dead, living = start(), start()
    left, kept = Path(read(dead)), Path(read(living))
    assert remove_left(tmp_path) == []
    dead.kill()
    dead.wait()
    foreign = tmp_path / "millstream-run-0000ff"
    foreign.mkdir(mode=0o755)
    (foreign / "lock").touch()
    (tmp_path / "millstream-run-0000fe").symlink_to(kept)
    assert run_directory(tmp_path).path.exists()
    assert not left.exists()
    assert (kept / "folder" / "graph").exists()
    assert (foreign / "lock").exists()
    assert (tmp_path / "millstream-run-0000fe").is_symlink()
    living.communicate("\n")
    assert living.returncode == 0
    assert not kept.exists(), "it removes its own when it ends"


def test_a_jvm_that_outlives_its_driver_keeps_it(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    driver = start("heir")
    heir, path = int(read(driver)), Path(read(driver))
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert remove_left(tmp_path) == []
    assert path.exists()
    driver.communicate()  # closes the input of the heir, and waits until it closes its output
    os.kill(heir, signal.SIGKILL) if Path(f"/proc/{heir}").exists() else None


def test_only_its_user_can_enter_it(tmp_path: Path) -> None:
    made = RunDirectory(tmp_path)
    assert made.path.stat().st_mode & 0o777 == 0o700
    made.remove()
    made.remove()
    assert list(tmp_path.iterdir()) == []


def test_addresses_of_sockets_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 90)
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert socket_directory(46).parent == Path("/tmp")
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    assert socket_directory(46) == run_directory().path
