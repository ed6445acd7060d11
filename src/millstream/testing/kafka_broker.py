"""A Kafka broker for tests and benchmarks, a process that ends with its parent.

``noida-db``, a single binary from PyPI, speaks Kafka's protocol with transactions, starts in less
than a second and needs no Java.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["broker_process"]

_START_SECONDS: Final = 120
_POLL_SECONDS: Final = 0.02


@contextlib.contextmanager
def broker_process(directory: Path, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Run a broker on the loopback interface for as long as the block runs.

    Args:
        directory: where its data and its log go; it must exist.
        port: a free one.
        host: the address of that interface, which clients are told, too.

    Yields:
        The id of its process, which is the leader of a process group.

    Raises:
        ModuleNotFoundError: ``noida-db`` is not installed.
        RuntimeError: it ended or does not listen after two minutes; says what it printed.
    """
    import noida_db

    program = Path(noida_db.__file__).with_name("noida-db")
    command = [str(program), "start", "--only", "kafka", "--host", host, "--kafka-port", str(port)]
    log = directory / "broker.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(  # noqa: S603 - our own command line
            [*command, "--data-dir", str(directory / "data")],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - it only makes one system call
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _listens(host, port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text())
            time.sleep(_POLL_SECONDS)
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False


def _die_with_parent() -> None:
    """Who is killed shall not leave a broker behind (Linux: PR_SET_PDEATHSIG)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
