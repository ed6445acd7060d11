"""A source that follows a script of records and events.

``ScriptedSource([1, 2, WATERMARK(5), EPOCH, 3, CRASH, 4])``:

- ``WATERMARK(t)``: event time advances to t (ms); take the strategy from ``watermark_strategy()``,
  or ``WatermarkStrategy.preserve()``.
- ``EPOCH``: a checkpoint is taken here.
- ``CRASH``: the first read that passes it raises SourceError; later ones continue.
- ``KILL``: the same, but the worker process kills itself with SIGKILL.
- ``EOF``: a job reads up to here and ends; the next run of the same job reads on.

Records may carry their timestamps: ``At(value, timestamp)``.
"""

from __future__ import annotations

import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.contracts.source import Boundedness, Source, SourceBatch, Split
from millstream.errors import SourceError
from millstream.functions.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.contracts.source import KnownSplits
    from millstream.types.types import TypeInformation

__all__ = ["CRASH", "EOF", "EPOCH", "KILL", "WATERMARK", "At", "ScriptedSource"]


@dataclass(frozen=True, slots=True)
class _Sentinel:
    name: str


CRASH: Final = _Sentinel("CRASH")
KILL: Final = _Sentinel("KILL")
EOF: Final = _Sentinel("EOF")
EPOCH: Final = _Sentinel("EPOCH")


@dataclass(frozen=True, slots=True)
class WATERMARK:
    """Event time advances to ``timestamp`` (ms) behind the record before it."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class At:
    """A record with its timestamp (ms)."""

    value: object
    timestamp: int


def _is(item: object, sentinel: _Sentinel) -> bool:
    # Not by identity: a source is pickled.
    return isinstance(item, _Sentinel) and item == sentinel


class ScriptedSource(Source):
    """Records and sentinels in one split; an offset is a position in the script.

    Args:
        script: records, ``At`` and sentinels.
        type_info: the type of the records; None leaves them untyped.
        directory: where CRASH, KILL and EOF remember over restarts that they happened; None takes
            a new temporary directory.
    """

    def __init__(
        self,
        script: Sequence[object],
        type_info: TypeInformation | None = None,
        directory: str | Path | None = None,
    ) -> None:
        self.script = list(script)
        self._type = type_info or Types.PICKLED_BYTE_ARRAY()
        self._directory = Path(directory or tempfile.mkdtemp(prefix="millstream-script-"))
        self._end = len(self.script)

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    def start(self) -> None:
        """Find the EOF at which this run ends."""
        for position, item in enumerate(self.script):
            if _is(item, EOF) and self._happens(position):
                self._end = position + 1
                return
        self._end = len(self.script)

    def discover(self, known: KnownSplits) -> list[Split]:
        return [] if "script" in known else [Split("script")]

    def end_offset(self, split: Split) -> int:
        """Behind the last item of this run."""
        del split
        return self._end

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        """No further than the next EPOCH."""
        del split
        stop = min(start + max(limit, 1), end)
        marks = (at + 1 for at in range(start, stop) if _is(self.script[at], EPOCH))
        return next(marks, stop)

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        """The records between two places; a batch ends at every sentinel."""
        del split
        values: list[object] = []
        stamps: list[int] = []
        for position in range(start, stop):
            item = self.script[position]
            if isinstance(item, At):
                stamps.append(item.timestamp)
                values.append(item.value)
            elif not isinstance(item, _Sentinel | WATERMARK):
                values.append(item)
            else:
                yield from self._batch(values, stamps)
                values, stamps = [], []
                if isinstance(item, WATERMARK):
                    yield SourceBatch(values=[], watermark=item.timestamp)
                self._pass(position, item)
        yield from self._batch(values, stamps)

    def _batch(self, values: list[object], stamps: list[int]) -> Iterator[SourceBatch]:
        if stamps and len(stamps) != len(values):
            message = "either all records between two sentinels are At(...) or none"
            raise SourceError(message)
        if values and self._type.arrow_schema is not None:
            yield SourceBatch(arrow=self._type.to_arrow(values), timestamps=stamps or None)
        elif values:
            yield SourceBatch(values=values, timestamps=stamps or None)

    def _pass(self, position: int, item: object) -> None:
        if _is(item, CRASH) and self._happens(position):
            message = f"CRASH at position {position} of the script"
            raise SourceError(message)
        if _is(item, KILL) and self._happens(position):
            os.kill(os.getpid(), signal.SIGKILL)

    def _happens(self, position: int) -> bool:
        """True the first time, over all processes and restarts."""
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            (self._directory / f"happened-{position}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def watermark_strategy(self) -> WatermarkStrategy:
        """The strategy that emits the script's watermarks; timestamps are those of ``At``."""
        behind: dict[int, int] = {}
        records = 0
        for item in self.script:
            if isinstance(item, WATERMARK):
                behind[records] = item.timestamp
            elif not isinstance(item, _Sentinel):
                records += 1
        return WatermarkStrategy.for_generator(_Supplier(behind))


@dataclass(frozen=True)
class _Supplier:
    """Makes generators; a class, since it is pickled."""

    behind: dict[int, int]

    def __call__(self, *_: object) -> WatermarkGenerator:
        return _ScriptedGenerator(self.behind)


class _ScriptedGenerator(WatermarkGenerator):
    """Counts records and emits the watermark that stands behind the n-th."""

    def __init__(self, behind: dict[int, int]) -> None:
        self.behind = behind
        self.records = 0

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        """A record passes."""
        del event, event_timestamp
        self.records += 1
        watermark = self.behind.get(self.records)
        if watermark is not None:
            output.emit_watermark(watermark)

    def on_periodic_emit(self, output: Any) -> None:
        """Watermarks come with records only."""
        del output
