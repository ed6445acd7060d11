"""Reading files of lines: cuts at record ends, blocks, and the position of what does not parse.

CSV, JSON lines and text share this.  Offsets are bytes.  A record belongs to the range in which its
first byte lies, so any cut of a file of plain lines is a good one; a format whose records may span
lines (``multi_line``) is cut at record ends by ``next_stop``.  Blocks of about 1 MiB go to a
pyarrow reader as a whole; only a block that does not parse is halved, to find the lines at fault.
"""

from __future__ import annotations

import codecs
import re
from abc import abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.formats.file_format import (
    BATCH_SIZE,
    BulkWriter,
    BulkWriterFactory,
    MalformedPolicy,
    StreamFormat,
    open_file,
    resolve,
    rows_of_columns,
    split_path,
)
from millstream.connectors.formats.row_format import arrow_schema, columns_of_rows
from millstream.contracts.source import SourceBatch
from millstream.errors import (
    ConfigurationError,
    MalformedRecordError,
    PermanentSinkError,
    SourceError,
)
from millstream.types.row import with_kind_column
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.connectors.formats.row_format import RowDecoder, RowEncoder
    from millstream.contracts.batch import Batch
    from millstream.contracts.source import Split
    from millstream.object_stores import StoreAccess
    from millstream.types.types import TypeInformation


BLOCK_SIZE: Final = 1 << 20
#: How much of the first file schema inference looks at.
HEAD_SIZE: Final = 4 << 20
#: Suffix -> compression.  Such a file is read as a whole, since it cannot be cut.
COMPRESSIONS: Final = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
#: Characters of a malformed record that an error shows.
SHOWN: Final = 200

#: Of an empty line, at most.
_BLANK_LENGTH: Final = 2
_BLANK_LINE: Final = re.compile(rb"(?m)^\r?\n")


def compression_of(path: str) -> str | None:
    """The compression that the suffix of ``path`` names, None if the file is plain."""
    return next((name for suffix, name in COMPRESSIONS.items() if path.endswith(suffix)), None)


@contextmanager
def open_bytes(path: str, stores: StoreAccess) -> Iterator[Any]:
    """A file to read from, decompressed where its suffix says so (then without seek)."""
    compression = compression_of(path)
    if compression is None:
        file = open_file(path, stores)
    else:
        filesystem, inner = resolve(path, stores)
        try:
            file = filesystem.open_input_stream(inner, compression=compression)
        except OSError as error:
            message = f"cannot open {path!r}: {error}"
            raise SourceError(message) from error
    with file:
        yield file


def head_of_file(path: str, stores: StoreAccess, size: int = HEAD_SIZE) -> tuple[bytes, bool]:
    """The first ``size`` bytes and whether that is all; for schema inference."""
    with open_bytes(path, stores) as file:
        head: bytes = file.read(size)
        return head, len(head) < size


@dataclass(frozen=True, slots=True)
class FaultyRecord:
    """A record that does not parse: its place in the block, its bytes and why."""

    position: int
    raw: bytes
    reason: str


class LineFormat(StreamFormat):
    """A format of lines.  Subclasses give ``parser`` and, if there is one, the header's end."""

    initial_limit = 32 << 20
    tells_positions = True

    #: Whether a quoted value may contain line breaks; then cuts are found by counting quotes.
    multi_line: bool = False
    quote: str | None = None
    escape: str | None = None

    def __init__(self, malformed: str | MalformedPolicy = MalformedPolicy.FAIL) -> None:
        self.malformed = MalformedPolicy.of(malformed)

    # -- what a subclass gives -------------------------------------------------------------------

    @abstractmethod
    def parser(self, path: str, header: bytes) -> Callable[[bytes], pa.Table]:
        """A function from a block of whole records to columns (one row per non-empty record).

        It raises ValueError (pyarrow's ArrowInvalid is one) if any record does not parse.
        """

    #: How many records at the beginning of a file are no data (a header).
    header_records: int = 0

    def is_comment(self, record: bytes) -> bool:
        """Return whether a record at the beginning of a file does not count as its header."""
        del record
        return False

    def is_blank(self, record: bytes) -> bool:
        """Return whether a record is passed over (an empty line)."""
        return not record.strip(b"\r\n")

    #: Whether empty lines are records (of text), and so counted.
    blank_is_record: bool = False

    def suspicious(self, last_record: bytes) -> bool:
        """Whether the last record of a block may be half a record that the parser took for one."""
        del last_record
        return False

    def hint(self) -> str:
        """Return what else a user may do about a malformed record."""
        return ""

    @property
    def advice(self) -> str:
        """What a user may do about a malformed record."""
        return "correct it, or use malformed='dead-letter' to set such records aside" + self.hint()

    # -- cuts ------------------------------------------------------------------------------------

    def properties(self, path: str, size: int) -> dict[str, object]:
        """Offsets are bytes; a compressed file (its size compressed) is read as a whole."""
        return {"path": path, "size": size, "end": size}

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        """The first record end at or after ``start + limit``."""
        target = start + max(limit, 1)
        path = split_path(split)
        if target >= end or compression_of(path) is not None:
            return end
        with open_bytes(path, self.stores) as file:
            if not self.multi_line:
                return _line_start(file, target, end)
            data_start = len(self._header(file, end))
            for position, block in self._blocks(file, max(start, data_start), end, end):
                if position + len(block) < target:
                    continue
                ends = position + self._record_ends(block)
                return int(next((cut for cut in ends.tolist() if cut >= target), end))
        return end

    def _record_ends(self, block: bytes) -> NDArray[np.int64]:
        """The positions after each record of a block that begins with a record."""
        plain = block
        if self.escape is not None:
            pattern = re.escape(self.escape.encode()) + b"."
            plain = re.sub(pattern, b"xx", block, flags=re.DOTALL)
        data = np.frombuffer(plain, dtype=np.uint8)
        newlines = np.flatnonzero(data == ord("\n"))
        if self.multi_line and self.quote is not None and self.quote.encode() in plain:
            # A doubled quote counts twice, so parity tells whether a line break lies in quotes.
            quotes = np.flatnonzero(data == ord(self.quote))
            newlines = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
        return newlines + 1

    def _last_record_end(self, block: bytes) -> int:
        if not self.multi_line or self.quote is None or self.quote.encode() not in block:
            return block.rfind(b"\n") + 1
        ends = self._record_ends(block)
        return int(ends[-1]) if len(ends) else 0

    def _header(self, file: Any, size: int) -> bytes:
        """The bytes before the first record: byte order mark and header record."""
        block = file.read(min(BLOCK_SIZE, size))
        mark = len(BYTE_ORDER_MARK) if block.startswith(BYTE_ORDER_MARK) else 0
        return bytes(block[: self._header_end(block, mark)])

    def _header_end(self, block: bytes, mark: int) -> int:
        """Where the data begins in the first block of a file; ``mark`` is where its text does."""
        left, begin = self.header_records, mark
        ends = iter(self._record_ends(block).tolist())
        while left:
            end = next(ends, len(block))
            left -= not self.is_comment(block[begin:end])
            begin = end
            if end == len(block):
                break
        return begin

    def _blocks(
        self,
        file: Any,
        start: int,
        stop: int,
        size: int,
        rest: bytes = b"",
    ) -> Iterator[tuple[int, bytes]]:
        """Blocks of whole records of ``[start, stop)`` with their positions; both are cuts.

        ``rest`` is what was already read from ``start`` on, of a file that cannot seek.
        """
        if file.seekable():
            file.seek(start)
        position, buffer = start, rest
        while position + len(buffer) < stop:
            wanted = max(BLOCK_SIZE, len(buffer))  # doubles for a record that is longer
            chunk = file.read(min(wanted, stop - position - len(buffer)))
            if not chunk:
                break
            buffer += chunk
            cut = self._last_record_end(buffer)
            if cut:
                yield position, buffer[:cut]
                position, buffer = position + cut, buffer[cut:]
        if file.seekable() and position + len(buffer) < min(stop, size):
            message = (
                "the file became shorter after it was discovered; write files elsewhere and "
                "move them in when they are complete"
            )
            raise SourceError(message)
        if buffer:
            yield position, buffer

    # -- reading ---------------------------------------------------------------------------------

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        """The records whose first byte lies in ``[start, stop)``."""
        path = split_path(split)
        size = int(str(split.properties["size"]))
        if start >= stop:
            return
        with open_bytes(path, self.stores) as file:
            if compression_of(path) is not None:
                yield from self._read_compressed(path, file, start)
                return
            header = self._header(file, size)
            parse = self.parser(path, header)
            first = start if self.multi_line else _line_start(file, start, size)
            last = stop if self.multi_line else _line_start(file, stop, size)
            for position, block in self._blocks(file, max(first, len(header)), last, size):
                yield from self._batches(parse, path, position, block, position + len(block))

    def _read_compressed(self, path: str, file: Any, start: int) -> Iterator[SourceBatch]:
        """The rest of a file from a position on.

        Its length is not known before it is read.  So the positions within it, at which only tasks
        that live on stop, are numbers of decompressed bytes, made negative: less than any end.
        """
        block = file.read(BLOCK_SIZE)
        mark = len(BYTE_ORDER_MARK) if block.startswith(BYTE_ORDER_MARK) else 0
        header_end = self._header_end(block, mark)
        parse = self.parser(path, bytes(block[:header_end]))
        begin, read = -start if start < 0 else header_end, len(block)
        while read < begin:
            skipped = file.read(min(begin - read, BLOCK_SIZE))
            if not skipped:
                break
            read += len(skipped)
            yield SourceBatch(values=[], position=start)  # nobody waits for all of it
        unlimited = 1 << 62
        for position, part in self._blocks(file, begin, unlimited, unlimited, block[begin:]):
            yield from self._batches(parse, path, position, part, -(position + len(part)))

    def _batches(
        self,
        parse: Callable[[bytes], pa.Table],
        path: str,
        position: int,
        block: bytes,
        behind: int,
    ) -> Iterator[SourceBatch]:
        """The records of a block at ``position``, and the offset after it with the last."""
        tables: list[pa.Table] = []
        faults: list[FaultyRecord] = []
        for outcome in self.parts(parse, block):
            if not isinstance(outcome, FaultyRecord):
                tables.append(outcome)
            elif self.malformed is MalformedPolicy.FAIL:
                raise MalformedRecordError(self._message(path, position, outcome))
            else:
                faults.append(outcome)
        letters = [self._dead_letter(path, position, fault) for fault in faults]
        schema = self.produced_type.arrow_schema
        batches = [
            batch
            for table in tables
            for batch in table.combine_chunks().to_batches(max_chunksize=BATCH_SIZE)
            if batch.num_rows
        ]
        if not batches and letters:
            batches = [pa.RecordBatch.from_pylist([], schema=schema)]
        for index, batch in enumerate(batches):
            last = index == len(batches) - 1
            yield SourceBatch(
                arrow=batch,
                dead_letters=[] if index else letters,
                position=behind if last else None,
            )

    def parts(
        self, parse: Callable[[bytes], pa.Table], block: bytes, offset: int = 0
    ) -> Iterator[pa.Table | FaultyRecord]:
        """Parse a block; take it apart only if it does not parse as exactly its records."""
        ends = self._record_ends(block)
        bounds = ends.tolist()
        if not bounds or bounds[-1] < len(block):
            bounds.append(len(block))
        reason = "it does not parse"
        last = bounds[-2] if len(bounds) > 1 else 0
        try:
            table = parse(block)
        except (ValueError, pa.ArrowException) as error:
            reason = str(error)
        else:
            complete = table.num_rows == len(bounds) - self._blank_lines(block, ends)
            if complete and not self.suspicious(block[last:]):
                yield table
                return
            reason = f"it parses as {table.num_rows} records"
        if len(bounds) == 1:
            yield from self._parse_one(parse, block, offset, reason)
            return
        middle = bounds[len(bounds) // 2 - 1]
        yield from self.parts(parse, block[:middle], offset)
        yield from self.parts(parse, block[middle:], offset + middle)

    def _parse_one(
        self, parse: Callable[[bytes], pa.Table], record: bytes, offset: int, reason: str
    ) -> Iterator[pa.Table | FaultyRecord]:
        if self.is_blank(record):
            return
        try:
            table = parse(record)
        except (ValueError, pa.ArrowException):
            pass
        else:
            if table.num_rows == 1:
                problem = self.problem_of_row(table)
                if problem is None:
                    yield table
                    return
                reason = problem
        yield FaultyRecord(offset, record, reason)

    def problem_of_row(self, row: pa.Table) -> str | None:
        """Return what is wrong with a single record that the parser lets pass."""
        del row
        return None

    def _blank_lines(self, block: bytes, ends: NDArray[np.int64] | None = None) -> int:
        """How many empty lines a block has; ``ends`` are those of its records, if known."""
        if self.blank_is_record:
            return 0
        if ends is not None and len(ends) and np.diff(ends, prepend=0).min() > _BLANK_LENGTH:
            return 0
        # The look first: the pattern is slow, and most blocks have no empty line.
        if b"\n\n" in block or b"\n\r\n" in block or block[:1] in (b"\n", b"\r"):
            if not self.multi_line:
                return len(_BLANK_LINE.findall(block))
            # Those within quotes are none.
            bounds = [0, *self._record_ends(block).tolist()]
            return sum(self.is_blank(block[a:b]) for a, b in pairwise(bounds))
        return 0

    # -- messages --------------------------------------------------------------------------------

    def _place(self, path: str, position: int) -> str:
        """``file:line`` of a byte, counted only now that somebody needs it."""
        line, left = 1, position
        with open_bytes(path, self.stores) as file:
            while left > 0:
                chunk = file.read(min(left, BLOCK_SIZE))
                if not chunk:
                    break
                line += chunk.count(b"\n")
                left -= len(chunk)
        return f"{path}:{line}"

    def _dead_letter(self, path: str, position: int, fault: FaultyRecord) -> tuple[str, str, str]:
        raw = fault.raw.rstrip(b"\r\n").decode("utf-8", "backslashreplace")
        return self._place(path, position + fault.position), raw, fault.reason

    def _message(self, path: str, position: int, fault: FaultyRecord) -> str:
        place, raw, reason = self._dead_letter(path, position, fault)
        shown = raw if len(raw) <= SHOWN else raw[:SHOWN] + "..."
        return f"{place}: malformed record: {reason}; the record is {shown!r}; {self.advice}"


def _line_start(file: Any, position: int, size: int) -> int:
    """The start of the first line that begins at or after ``position``."""
    if position <= 0:
        return 0
    if position >= size:
        return size
    at = position - 1  # a line begins at position if a line break is right before it
    file.seek(at)
    while at < size:
        chunk = file.read(min(1 << 16, size - at))
        if not chunk:
            break
        found = chunk.find(b"\n")
        if found >= 0:
            return int(at + found + 1)
        at += len(chunk)
    return size


class TextLineFormat(LineFormat):
    """Lines of text in a charset."""

    blank_is_record = True

    def __init__(
        self, charset_name: str = "UTF-8", malformed: str | MalformedPolicy = MalformedPolicy.FAIL
    ) -> None:
        super().__init__(malformed)
        try:
            self.charset = codecs.lookup(charset_name).name
        except LookupError as error:
            message = f"unknown charset {charset_name!r}"
            raise ConfigurationError(message) from error
        if "\n".encode(self.charset) != b"\n":
            message = (
                f"charset {charset_name!r} does not end lines with the byte 10; convert to UTF-8"
            )
            raise ConfigurationError(message)

    @property
    def produced_type(self) -> TypeInformation:
        return Types.STRING()

    def is_blank(self, record: bytes) -> bool:
        """No line is passed over: an empty line is an empty string."""
        del record
        return False

    def parser(self, path: str, header: bytes) -> Callable[[bytes], pa.Table]:
        del path, header
        return self._split

    def _split(self, block: bytes) -> pa.Table:
        if self.charset not in {"utf-8", "ascii"}:
            block = block.decode(self.charset).encode()
        if b"\r\n" in block:
            block = block.replace(b"\r\n", b"\n")
        text = pa.array([block.removesuffix(b"\n")], pa.binary()).cast(pa.large_string())
        lines = pc.list_flatten(pc.split_pattern(text, "\n")).cast(pa.string())
        return pa.table({"f0": lines})


# -- messages of tables ----------------------------------------------------------------------------


#: Lines of which one that the fast way does not take sends the others the slow one.
_AT_ONCE: Final = 2000


class MessageLines(LineFormat):
    """Each line is a message, of no row, one or several.

    Args:
        decoder: reads messages.
        advice: what to do about a malformed one; empty: that of files without a table.
    """

    def __init__(self, decoder: RowDecoder, advice: str = "") -> None:
        super().__init__()
        self._decoder = decoder
        self._advice = advice
        self._schema = arrow_schema(decoder.row)

    @property
    def advice(self) -> str:
        return self._advice or super().advice

    @property
    def produced_type(self) -> TypeInformation:
        return rows_of_columns(self._schema)

    def parser(self, path: str, header: bytes) -> Callable[[bytes], pa.Table]:
        """Not asked for rows: lines do not have one each."""
        del path, header
        return lambda _: self._schema.empty_table()

    def parts(
        self, parse: Callable[[bytes], pa.Table], block: bytes, offset: int = 0
    ) -> Iterator[pa.Table | FaultyRecord]:
        del parse
        lines = block.split(b"\n")
        for start in range(0, len(lines), _AT_ONCE):
            some = lines[start : start + _AT_ONCE]
            trimmed = [line.rstrip(b"\r") for line in some]
            there = [line for line in trimmed if line.strip()]
            columns = self._decoder.columns(there) if there else None
            if columns is not None:
                yield pa.Table.from_batches([columns])
            else:
                yield from self._one_by_one(some, offset)
            offset += sum(map(len, some)) + len(some)

    def _one_by_one(
        self, lines: Sequence[bytes], position: int
    ) -> Iterator[pa.Table | FaultyRecord]:
        rows: list[Sequence[Any]] = []
        kinds: list[int] = []
        for raw in lines:
            line = raw.rstrip(b"\r")
            try:
                found = self._decoder.decode(line) if line.strip() else []
            except (ValueError, ArithmeticError, LookupError, TypeError) as error:
                yield FaultyRecord(position, raw, str(error))
                found = []
            kinds += [kind for kind, _ in found]
            rows += [row for _, row in found]
            position += len(raw) + 1
        made = columns_of_rows(self._schema, rows)
        if any(kinds):
            made = with_kind_column(made, np.array(kinds, np.int8))
        yield pa.Table.from_batches([made])


class MessageLinesWriterFactory(BulkWriterFactory):
    """A message per line.

    Args:
        encoder: writes messages.
        extension: of the files, with its dot.
    """

    def __init__(self, encoder: RowEncoder, extension: str) -> None:
        self._encoder = encoder
        self.extension = extension

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        del type_info
        return _LinesWriter(stream, self._encoder)


class _LinesWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], encoder: RowEncoder) -> None:
        self._stream = stream
        self._encoder = encoder

    def write(self, batch: Batch) -> None:
        try:
            lines = self._encoder.encode(batch.arrow, batch.row_kinds)
        except (ValueError, ArithmeticError, TypeError) as error:
            message = f"a row cannot be written: {error}"
            raise PermanentSinkError(message) from error
        self._stream.write(b"".join((line or b"") + b"\n" for line in lines))

    def finish(self) -> None:
        pass
