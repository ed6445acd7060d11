"""Flink's socket text stream: reads lines of text from a TCP server, for trying things out.

A thread in the driver reads the socket and appends whole lines to segment files in a temporary
directory; an offset is a byte of all segments together; tasks read the segments.  A small file
holds how much is written, for long-running tasks.  So the workers must see the driver's temporary
directory (``local[*]``, or ``directory=`` on a shared file system).
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
import struct
import tempfile
import threading
import uuid
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.line_format import TextLineFormat
from millstream.contracts.source import Boundedness, FollowingCursor, Source, SourceBatch, Split
from millstream.directories import run_directory
from millstream.errors import SourceError
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.source import KnownSplits, SplitCursor
    from millstream.types.types import TypeInformation


SEGMENT_SIZE: Final = 64 << 20
CONNECT_TIMEOUT: Final = 10.0
RETRY_DELAY: Final = 0.5
#: Beside the segments: bytes of whole lines, and whether no more come.
_WRITTEN: Final = "written"
_STATE: Final = struct.Struct("<q?")


class SocketTextStreamSource(Source):
    """Lines from a server.

    Args:
        hostname: of the server.
        port: of the server.
        max_retry: how often, in a row, to connect again after the server closed; 0 ends the
            stream then, -1 tries for ever.
        directory: where lines are kept; None takes a temporary directory.
    """

    replayable = False
    initial_limit = 32 << 20
    cursors_follow = True

    def __init__(
        self, hostname: str, port: int, *, max_retry: int = 0, directory: str | None = None
    ) -> None:
        self.hostname = hostname
        self.port = port
        self.max_retry = max_retry
        self.directory = directory
        self._format = TextLineFormat()
        self._reader: _Reader | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_reader": None}

    @property
    def boundedness(self) -> Boundedness:
        """It may be unbounded."""
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return Types.STRING()

    def validate(self) -> None:
        """Check that the server's name is known; raises SourceError."""
        try:
            socket.getaddrinfo(self.hostname, self.port)
        except OSError as error:
            message = f"socket source: unknown host {self.hostname!r}: {error}"
            raise SourceError(message) from error

    def start(self) -> None:
        if self._reader is None:
            self._reader = _Reader(self)

    def stop(self) -> None:
        """Stop reading; lines already read stay readable for the next run in this process."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    def discover(self, known: KnownSplits) -> list[Split]:
        """One split per connection of a driver."""
        if self._reader is None:
            self.start()
        reader = self._reader
        if reader is None:
            return []
        reader.known = reader.split.id in known
        return [] if reader.known else [reader.split]

    @property
    def has_all_splits(self) -> bool:
        """Whether the connection is over, and there will be no other."""
        reader = self._reader
        return reader is not None and reader.known and reader.finished and reader.error is None

    def end_offset(self, split: Split) -> int:
        """The bytes of whole lines received; raises SourceError if the connection failed."""
        reader = self._reader
        if reader is not None and reader.split.id == split.id:
            if reader.error is not None:
                raise reader.error
            return reader.written
        segments = _segments(split)  # of a driver that died: what it wrote can still be read
        return max((start + path.stat().st_size for start, path in segments), default=0)

    def is_final(self, split: Split) -> bool:
        """Return whether the split's connection is over."""
        reader = self._reader
        return reader is None or reader.split.id != split.id or reader.finished

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        """The end of a line in the segment of ``start``."""
        for first, path in _segments(split):
            size = path.stat().st_size
            if first <= start < first + size:
                part = Split("", {"path": str(path), "size": size})
                return min(first + self._format.next_stop(part, start - first, limit, size), end)
        return end

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        for first, path in _segments(split):
            size = path.stat().st_size
            if first < stop and first + size > start:
                part = Split("", {"path": str(path), "size": size})
                yield from self._format.read(part, max(start - first, 0), min(stop - first, size))

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        """Read lines as they come: what the driver has written is seen without it."""
        return FollowingCursor(_Written(self, split), split, position)

    def committed(self, offsets: dict[str, int]) -> None:
        """Delete segments that were read by committed epochs."""
        reader = self._reader
        if reader is None or reader.split.id not in offsets:
            return
        position = offsets[reader.split.id]
        segments = _segments(reader.split)
        for (_, path), (next_start, _) in itertools.pairwise(segments):
            if next_start <= position:
                path.unlink(missing_ok=True)


class _Written:
    """A split as tasks see it, which may be in other processes than its reader."""

    def __init__(self, source: SocketTextStreamSource, split: Split) -> None:
        self.next_stop = source.next_stop
        self.read = source.read
        self._path = Path(str(split.properties["directory"])) / _WRITTEN

    def end_offset(self, split: Split) -> int:
        del split
        return self._state()[0]

    def is_final(self, split: Split) -> bool:
        del split
        return self._state()[1]

    def _state(self) -> tuple[int, bool]:
        """Bytes of whole lines, and whether no more come."""
        with contextlib.suppress(FileNotFoundError, struct.error):  # just begun
            written, finished = _STATE.unpack(self._path.read_bytes())
            return written, finished
        return 0, False


def _segments(split: Split) -> list[tuple[int, Path]]:
    """First byte and file of each segment, in order."""
    directory = Path(str(split.properties["directory"]))
    with contextlib.suppress(FileNotFoundError):
        return sorted((int(path.stem), path) for path in directory.glob("*.segment"))
    return []


class _Reader:
    """Reads the socket in a thread of the driver."""

    def __init__(self, source: SocketTextStreamSource) -> None:
        self._source = source
        name = f"socket-{source.hostname}-{source.port}-{uuid.uuid4().hex[:12]}"
        if source.directory is None:
            place = tempfile.mkdtemp(prefix=f"{name}-", dir=run_directory().path)
            self._directory = Path(place)
            # Not when the reader stops: a run that failed is repeated from these files.
            weakref.finalize(source, shutil.rmtree, str(self._directory), ignore_errors=True)
        else:
            self._directory = Path(source.directory) / name
            self._directory.mkdir(parents=True)
        self.split = Split(name, {"directory": str(self._directory)})
        #: Bytes of whole lines in the segments.
        self.written = 0
        self.finished = False
        #: The driver has logged the split: what was read of it is not forgotten.
        self.known = False
        self._told = False
        self.error: SourceError | None = None
        self._stopping = threading.Event()
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=CONNECT_TIMEOUT)

    def _run(self) -> None:
        failures = 0
        address = (self._source.hostname, self._source.port)
        while not self._stopping.is_set():
            problem: OSError | None = None
            try:
                with socket.create_connection(address, CONNECT_TIMEOUT) as connection:
                    connection.settimeout(None)
                    self._connection = connection
                    failures = 0
                    self._receive(connection)
            except OSError as error:
                problem = error
            self._connection = None
            failures += 1
            if 0 <= self._source.max_retry < failures:
                if problem is not None and not self._stopping.is_set():
                    message = f"socket source {address[0]}:{address[1]}: {problem}"
                    self.error = SourceError(message)
                break
            self._stopping.wait(RETRY_DELAY)
        self.finished = True
        if self.error is None:  # else the driver says what it is
            self._tell(finished=True)

    def _tell(self, *, finished: bool) -> None:
        """Say to tasks how much is written; in one write, which nobody sees half of."""
        with (self._directory / _WRITTEN).open("r+b" if self._told else "wb", 0) as stream:
            stream.write(_STATE.pack(self.written, finished))
        self._told = True

    def _receive(self, connection: socket.socket) -> None:
        rest = b""
        segment: Path | None = None
        filled = 0
        while not self._stopping.is_set():
            received = connection.recv(1 << 16)
            lines = rest + received
            # The last line may lack its line break; it is a line once the server closed.
            cut = lines.rfind(b"\n") + 1 if received else len(lines)
            whole, rest = lines[:cut], lines[cut:]
            if not received and whole:
                whole += b"\n"
            if whole:
                if segment is None or filled >= SEGMENT_SIZE:
                    segment, filled = self._directory / f"{self.written:020d}.segment", 0
                with segment.open("ab") as stream:
                    stream.write(whole)
                filled += len(whole)
                self.written += len(whole)
                self._tell(finished=False)
            if not received:
                return
