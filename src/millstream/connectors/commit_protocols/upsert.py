"""UpsertSink: rows by key, written again without harm.

What it is: a template for targets with an upsert (key-value stores, tables with a primary key).
Two ways:

``fenced=False`` (default)  The tasks write while the epoch runs; where they go on, within
    milliseconds.  Results are visible at once, and an epoch that fails is run again and writes the
    same keys again.  **Until it has, readers see values of an epoch that did not happen**, and
    after a failure a value may go back for a moment.  If the replay makes other keys than the first
    run did (because it looks at the clock, or at random numbers), rows of keys that only the first
    run made stay.

``fenced=True``  The rows are staged in the checkpoint directory and written when the epoch is
    committed, so readers see values of committed epochs only: they never go back.

In both, ``upsert`` gets a number that grows with each run and epoch (``fence_of``).  A target that
stores it beside the row and refuses to replace a row with a greater one is safe from an old driver
or task that was thought dead.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from millstream.connectors.commit_protocols.staged_values import (
    StagedCommitter,
    StagingWriter,
    read_staged,
)
from millstream.contracts.sink import Sink, SinkKind, SinkWriter, fence_of
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.connectors.commit_protocols.staged_values import StagedPart
    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import (
        Committable,
        Committer,
        CommitterContext,
        WriterContext,
    )


class UpsertSink(Sink):
    """Writes the newest value of each key.

    Args:
        fenced: write at the commit and not before.
        batch_size: keys per call of ``upsert``.
    """

    kind = SinkKind.IDEMPOTENT

    # Of the class, for subclasses that do not call super().__init__().
    fenced: bool = False
    batch_size: int = 1000

    def __init__(self, *, fenced: bool = False, batch_size: int = 1000) -> None:
        if batch_size < 1:
            message = f"batch_size is {batch_size}; it must be at least 1"
            raise SinkError(message)
        self.fenced = fenced
        self.batch_size = batch_size

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """The key of a record; hashable."""

    @abstractmethod
    def upsert(self, rows: Mapping[Any, Any], epoch: int) -> None:
        """Insert or replace rows.

        Args:
            rows: key -> newest value.
            epoch: run and epoch in one number, to be stored beside each row, so that rows with a
                greater one are not replaced.
        """

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer that upserts, or stages if the sink is fenced."""
        if self.fenced:
            return StagingWriter(context, type(self).__name__)
        return _UpsertWriter(self, context.fence)

    def create_committer(self) -> Committer | None:
        """The committer of a fenced sink."""
        return _UpsertCommitter(copy.deepcopy(self)) if self.fenced else None


class _UpsertWriter(SinkWriter):
    def __init__(self, sink: UpsertSink, epoch: int) -> None:
        self._sink = sink
        self._epoch = epoch
        self._rows: dict[Any, Any] = {}

    def write(self, batch: Batch) -> None:
        self.add(batch.values)

    def add(self, values: Iterable[object]) -> None:
        """Take records; write when there are enough keys."""
        for value in values:
            self._rows[self._sink.get_key(value)] = value
            if len(self._rows) >= self._sink.batch_size:
                self.flush()

    def flush(self) -> None:
        """Write what is held back."""
        if self._rows:
            self._sink.upsert(self._rows, self._epoch)
            self._rows = {}

    def prepare_commit(self) -> Sequence[Committable]:
        self.flush()
        return []


class _UpsertCommitter(StagedCommitter):
    def __init__(self, sink: UpsertSink) -> None:
        super().__init__(sink)
        self._upsert = sink

    def write(self, context: CommitterContext, epoch: int, parts: list[StagedPart]) -> None:
        # That of the run that has staged them: the same if they are committed again.
        generation = max(part["generation"] for part in parts)
        rows = _UpsertWriter(self._upsert, fence_of(generation, epoch))
        rows.add(read_staged(context, parts, epoch))
        rows.flush()
