"""Sinks for tests: ``FailingSink(inner, "prepare", times=2)`` fails at a named step.

Failures are counted over all processes and restarts.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.contracts.sink import Committer, Sink, SinkWriter, WriterContext
from millstream.errors import ConfigurationError, SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import CommitRequest, Committable, CommitterContext
    from millstream.types.types import TypeInformation

__all__ = ["STEPS", "CollectSink", "FailingSink", "read_collected"]

#: Where a FailingSink can fail.
STEPS: Final = (
    "validate",
    "create_writer",
    "write",
    "prepare.before",
    "prepare.after",
    "commit.before",
    "commit.half",
    "commit.after",
    "abort",
)


class FailingSink(Sink):
    """A sink that fails at a step, a number of times.

    Args:
        inner: the sink that does the work.
        step: one of ``STEPS``; "commit.half" fails when half of the committables are committed.
        times: how often.
        directory: where failures are counted; None takes a new temporary directory.
    """

    def __init__(
        self, inner: Sink, step: str, *, times: int = 1, directory: str | Path | None = None
    ) -> None:
        if step not in STEPS:
            message = f"unknown step {step!r}; known are: {', '.join(STEPS)}"
            raise ConfigurationError(message)
        self.inner = inner
        self.step = step
        self.times = times
        self.guarantee = inner.guarantee
        self.kind = inner.kind
        self._directory = Path(directory or tempfile.mkdtemp(prefix="millstream-failing-"))

    @property
    def failures(self) -> int:
        """How often it failed so far."""
        return sum(1 for _ in self._directory.glob("failed-*"))

    def reach(self, step: str) -> None:
        """Fail if it is time to."""
        if step != self.step:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        for number in range(self.times):
            try:
                (self._directory / f"failed-{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            message = f"FailingSink: failure {number + 1} of {self.times} at {step}"
            raise SinkError(message)

    @property
    def connector(self) -> str:
        """That of the inner sink: its committables are the same."""
        return self.inner.connector

    def validate(self) -> None:
        self.reach("validate")
        self.inner.validate()

    def validate_input(self, type_info: TypeInformation) -> None:
        self.inner.validate_input(type_info)

    def validate_parallelism(self, parallelism: int) -> None:
        self.inner.validate_parallelism(parallelism)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        self.reach("create_writer")
        return _FailingWriter(self, self.inner.create_writer(context))

    def create_committer(self) -> Committer | None:
        inner = self.inner.create_committer()
        return None if inner is None else _FailingCommitter(self, inner)

    def committed(self, epoch: int) -> None:
        self.inner.committed(epoch)

    def end_input(self) -> None:
        self.inner.end_input()

    def close(self) -> None:
        self.inner.close()


class _FailingWriter(SinkWriter):
    def __init__(self, sink: FailingSink, inner: SinkWriter) -> None:
        self._sink = sink
        self._inner = inner
        self.prepares_aside = inner.prepares_aside

    def write(self, batch: Batch) -> None:
        self._sink.reach("write")
        self._inner.write(batch)

    def write_watermark(self, watermark: int) -> None:
        self._inner.write_watermark(watermark)

    def flush(self) -> None:
        self._inner.flush()

    def seal(self) -> None:
        self._inner.seal()

    def prepare_commit(self) -> Sequence[Committable]:
        self._sink.reach("prepare.before")
        committables = self._inner.prepare_commit()
        self._sink.reach("prepare.after")
        return committables

    def abort(self) -> None:
        self._sink.reach("abort")
        self._inner.abort()

    def close(self) -> None:
        self._inner.close()


class _FailingCommitter(Committer):
    def __init__(self, sink: FailingSink, inner: Committer) -> None:
        self._sink = sink
        self._inner = inner

    def open(self, context: CommitterContext) -> None:
        self._inner.open(context)

    def resume_from(self, epoch: int) -> None:
        self._inner.resume_from(epoch)

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        self._sink.reach("commit.before")
        half = len(requests) // 2
        self._inner.commit(requests[:half])
        self._sink.reach("commit.half")
        # A committer is given everything of an epoch at once.
        self._inner.commit([replace(request, retried=True) for request in requests])
        self._sink.reach("commit.after")

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        self._inner.abort_orphans(job_id, sink_uid, keep, generation)

    def close(self) -> None:
        self._inner.close()
