"""Writers and committers in child processes that kill themselves with SIGKILL.

A child gets the pickled sink and its instructions, leaves its committables in a file and kills
itself, like a lost executor or a driver after ``kill -9``.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence as AbstractSequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from millstream.contracts.batch import Batch
from millstream.contracts.sink import CommitRequest
from millstream.types.pickling import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.contracts.sink import Committable, CommitterContext, Sink, WriterContext

__all__ = ["commit_and_die", "write_and_die"]

#: Seconds that a child may take.
_PATIENCE: Final = 120.0
_COMMAND: Final = "from millstream.testing.sink_processes import child; child()"


def write_and_die(
    sink: Sink, prepared: WriterContext, unfinished: WriterContext, batches: Sequence[Batch]
) -> list[Committable]:
    """Write an epoch in two subtasks of a process that is killed.

    Args:
        sink: its class must be importable.
        prepared: the subtask that has pre-committed by then.
        unfinished: the one that has not.
        batches: what each writes.

    Returns:
        The committables of the first.
    """
    parts = [(batch.type_info, batch.values, batch.timestamp_list) for batch in batches]
    task = {"sink": sink, "prepared": prepared, "unfinished": unfinished, "batches": parts}
    return _run(_write, task)


def commit_and_die(
    sink: Sink,
    context: CommitterContext,
    committables: Sequence[Committable],
    epoch: int,
    *,
    after: int,
) -> None:
    """Commit in a process that is killed when the committer asks for the next committable.

    Args:
        sink: its class must be importable.
        context: who commits.
        committables: what to commit.
        epoch: theirs.
        after: how many are handed out before.
    """
    requests = [CommitRequest(item, epoch, retried=True) for item in committables]
    _run(_commit, {"sink": sink, "context": context, "requests": requests, "after": after})


def _run(action: Any, task: dict[str, object]) -> list[Committable]:
    """Run an action in a child, which must die by SIGKILL; what it left."""
    with tempfile.TemporaryDirectory(prefix="millstream-child-") as directory:
        place = Path(directory)
        (place / "task").write_bytes(dumps((action, task)))
        code, said = _start_child(directory)
        if code != -signal.SIGKILL:
            message = f"a process with the sink failed (is its class importable?):\n{said}"
            raise AssertionError(message)
        result = place / "result"
        left: list[Committable] = pickle.loads(result.read_bytes()) if result.exists() else []
        return left


def _start_child(directory: str) -> tuple[int | None, str]:
    """Run ``child`` in a new interpreter; its exit code, and what it says."""
    done = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", _COMMAND, directory],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    return done.returncode, done.stderr


# -- in the child --------------------------------------------------------------------------------


def child() -> None:
    """Do what the directory named on the command line says, and die."""
    directory = Path(sys.argv[1])
    action, task = cast("tuple[Any, Any]", loads((directory / "task").read_bytes()))
    result = action(**task)
    (directory / "result").write_bytes(dumps(result))
    _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _write(
    sink: Sink, prepared: WriterContext, unfinished: WriterContext, batches: list[Any]
) -> object:
    committables: list[Committable] = []
    for where in (prepared, unfinished):
        writer = sink.create_writer(where)
        for type_info, values, timestamps in batches:
            writer.write(Batch(type_info, values=values, timestamps=timestamps))
        if where is prepared:
            committables = list(writer.prepare_commit())
            writer.close()
    return committables


def _commit(
    sink: Sink, context: CommitterContext, requests: list[CommitRequest], after: int
) -> object:
    committer = sink.create_committer()
    if committer is None:
        message = "the sink has no committer"
        raise AssertionError(message)
    committer.open(context)
    committer.commit(_Deadly(requests, after))
    return []


class _Deadly(AbstractSequence[CommitRequest]):
    """Requests; whoever asks for more than the first ``after`` is killed."""

    def __init__(self, requests: list[CommitRequest], after: int) -> None:
        self._requests = requests
        self._after = after

    def __len__(self) -> int:
        return len(self._requests)

    def __getitem__(self, index: Any) -> Any:
        if index not in range(self._after):
            _die()
        return self._requests[index]

    def __iter__(self) -> Iterator[CommitRequest]:
        return (self[index] for index in range(len(self)))
