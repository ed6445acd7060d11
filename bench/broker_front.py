"""Stands between clients and ``noida-db``, and lets fetches wait as a Kafka broker does.

What it is: a process that passes on what clients and the broker say.  ``noida-db`` answers a Fetch
for which it has nothing at once, whatever ``fetch.min.bytes`` and ``fetch.wait.max.ms`` say, so
that every idle consumer asks without a pause: 0.4 core for each, and as much again of the broker's.
That is no property of the jobs that are measured, nor of Kafka.  Here such an answer is held back
until ``max_wait_ms`` of the request are over, or something is there: a Produce to one of its
topics, or the end of a transaction, has passed by here, and then the broker is asked again.

As in Kafka, the requests of one connection are answered one after the other.

The broker listens on another address of the loopback interface, of as many characters, so that
what it says of its own address (Metadata and others) is corrected without looking at more.  Fetch
and Produce are offered up to the last versions without compact fields (11 and 8).

Run by ``bench/kafka_broker.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import sys
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BROKER_HOST", "HOST", "READY"]

#: Where clients connect, and where the broker is: of the same length.
HOST: Final = "127.0.0.1"
BROKER_HOST: Final = "127.0.0.2"
#: What is printed when clients may come.
READY: Final = "ready"

_PRODUCE, _FETCH, _METADATA, _FIND_COORDINATOR, _API_VERSIONS = 0, 1, 3, 10, 18
_END_TXN, _DESCRIBE_CLUSTER = 26, 60
_HEADER: Final = struct.Struct(">ihhih")
_SIZE: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
#: Of a partition in an answer: number, error, high watermark, last stable offset, start of the log,
#: count of aborted transactions.
_FOUND: Final = struct.Struct(">ihqqqi")
#: Bytes of an answer that is passed on as it comes: the broker sends a hundred megabytes at once.
_LARGE: Final = 65_536
#: Bytes of a partition in a Fetch.
_ASKED: Final = 28
_FETCH_VERSION: Final = 11
#: Entries of ApiVersions: key, first and last version; what the broker says, and what clients hear.
_OFFERED: Final = (
    (struct.pack(">hhh", _PRODUCE, 0, 9), struct.pack(">hhh", _PRODUCE, 0, 8)),
    (struct.pack(">hhh", _FETCH, 0, 13), struct.pack(">hhh", _FETCH, 0, _FETCH_VERSION)),
)
_READ_COMMITTED: Final = 1


class _Fetch(NamedTuple):
    """What a Fetch asks for, as far as it matters here."""

    seconds: float
    is_committed: bool
    topics: list[bytes]


def _text(frame: bytes, at: int) -> tuple[bytes, int]:
    """A nullable string, empty for none, and where it ends."""
    (length,) = _INT16.unpack_from(frame, at)
    end = at + 2 + max(length, 0)
    return frame[at + 2 : end], end


def _fetch(frame: bytes, at: int) -> _Fetch:
    """Read the body of a request, of the last version offered."""
    wait, committed = _SIZE.unpack_from(frame, at + 4)[0], frame[at + 16]
    (count,) = _SIZE.unpack_from(frame, at + 25)
    at += 29
    topics = []
    for _ in range(count):
        topic, at = _text(frame, at)
        topics.append(topic)
        at += 4 + _ASKED * _SIZE.unpack_from(frame, at)[0]
    return _Fetch(wait / 1000, committed == _READ_COMMITTED, topics)


def _is_empty(frame: bytes) -> bool:
    """Whether the answer to such a Fetch has neither records nor errors."""
    if _INT16.unpack_from(frame, 12)[0]:
        return False
    (topics,) = _SIZE.unpack_from(frame, 18)
    at = 22
    for _ in range(topics):
        _, at = _text(frame, at)
        (partitions,) = _SIZE.unpack_from(frame, at)
        at += 4
        for _ in range(partitions):
            _, error, _, _, _, aborted = _FOUND.unpack_from(frame, at)
            # Behind the aborted transactions is the replica that is preferred.
            at += _FOUND.size + 16 * max(aborted, 0) + 4
            if error or _SIZE.unpack_from(frame, at)[0] > 0:
                return False
            at += 4
    return True


def _produced(frame: bytes, at: int) -> tuple[bool, bool, list[bytes]]:
    """Of a Produce: is it in a transaction, is it answered, and its topics."""
    transaction, at = _text(frame, at)
    is_answered = bool(_INT16.unpack_from(frame, at)[0])
    (count,) = _SIZE.unpack_from(frame, at + 6)
    at += 10
    topics = []
    for _ in range(count):
        topic, at = _text(frame, at)
        topics.append(topic)
        (partitions,) = _SIZE.unpack_from(frame, at)
        at += 4
        for _ in range(partitions):
            at += 8 + max(_SIZE.unpack_from(frame, at + 4)[0], 0)
    return bool(transaction), is_answered, topics


class _Waiting:
    """The sessions whose fetches wait, and for what."""

    def __init__(self) -> None:
        self._sessions: dict[_Session, _Fetch] = {}

    def add(self, session: _Session, fetch: _Fetch) -> None:
        """Have it asked again when there may be something."""
        self._sessions[session] = fetch

    def remove(self, session: _Session) -> None:
        """It does not wait any more."""
        self._sessions.pop(session, None)

    def written(self, topics: Iterable[bytes], *, in_transaction: bool) -> None:
        """There is something in these topics, committed or not."""
        for session, fetch in list(self._sessions.items()):
            hidden = in_transaction and fetch.is_committed
            if not hidden and any(topic in fetch.topics for topic in topics):
                session.ask_again()

    def ended(self) -> None:
        """A transaction has ended."""
        for session, fetch in list(self._sessions.items()):
            if fetch.is_committed:
                session.ask_again()


class _Frames(asyncio.Protocol):
    """Cuts what comes on a connection into frames, with their sizes ahead of them."""

    def __init__(self, session: _Session) -> None:
        self.session = session
        self.transport: asyncio.Transport | None = None
        self._rest = b""
        #: Bytes to come of a frame that is passed on as it comes.
        self._coming = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._coming:
            part, data = data[: self._coming], data[self._coming :]
            self._coming -= len(part)
            self.session.answered_in_parts(part, is_last=not self._coming)
        rest = self._rest + data if self._rest else data
        while len(rest) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(rest)[0]
            if len(rest) < end:
                if end > _LARGE and self.passes_on():
                    self._coming = end - len(rest)
                    self.session.answered_in_parts(rest, is_last=False)
                    rest = b""
                break
            frame, rest = rest[:end], rest[end:]
            self.take(frame)
        self._rest = rest

    def take(self, frame: bytes) -> None:
        raise NotImplementedError

    def passes_on(self) -> bool:
        """Whether a large frame need not be seen as a whole."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.session.close()


class _ClientSide(_Frames):
    def take(self, frame: bytes) -> None:
        self.session.requested(frame)


class _BrokerSide(_Frames):
    def take(self, frame: bytes) -> None:
        self.session.answered(frame)

    def passes_on(self) -> bool:
        return self.session.is_fetching


class _Session:
    """One connection of a client, and its own to the broker.

    Invariant: at most one request is with the broker, or held, at a time.
    """

    def __init__(self, waiting: _Waiting, port: int) -> None:
        self._waiting = waiting
        self._port = port
        self._loop = asyncio.get_running_loop()
        self.client = _ClientSide(self)
        self._broker = _BrokerSide(self)
        self._requests: deque[bytes] = deque()
        #: What is with the broker or held: the frame and its kind.
        self._current: tuple[bytes, int] | None = None
        self._fetch: _Fetch | None = None
        #: When the fetch is answered in any case; 0.0: it was not held yet.
        self._until = 0.0
        #: While its answer is held: the answer, and what ends that.
        self._held = b""
        self._timer: asyncio.TimerHandle | None = None
        #: Something was written while the broker was asked.
        self._is_stale = False
        self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self._loop.create_connection(lambda: self._broker, BROKER_HOST, self._port)
        except OSError:
            self.close()
        else:
            self._next()

    def requested(self, frame: bytes) -> None:
        """Take a request of the client's."""
        self._requests.append(frame)
        self._next()

    def _next(self) -> None:
        while self._requests and self._current is None and self._broker.transport is not None:
            frame = self._requests.popleft()
            _, kind, version, _, length = _HEADER.unpack_from(frame)
            self._current = frame, kind
            body = _HEADER.size + max(length, 0)
            if kind == _FETCH and version == _FETCH_VERSION:
                self._fetch, self._until = _fetch(frame, body), 0.0
                # From now on: what is written while the broker looks may not be in its answer.
                self._waiting.add(self, self._fetch)
            elif kind == _PRODUCE and not _produced(frame, body)[1]:
                self._current = None
            self._broker.transport.write(frame)

    def answered(self, frame: bytes) -> None:
        """Take an answer of the broker's."""
        if self._current is None:
            self.close()
            return
        request, kind = self._current
        if self._fetch is not None and self._is_held(self._fetch, frame):
            return
        if kind in {_METADATA, _FIND_COORDINATOR, _DESCRIBE_CLUSTER}:
            frame = frame.replace(BROKER_HOST.encode(), HOST.encode())
        elif kind == _API_VERSIONS:
            for said, heard in _OFFERED:
                frame = frame.replace(said, heard, 1)
        self._answer(frame)
        # Behind the answer: the client that has written may go on.
        if kind == _PRODUCE:
            in_transaction, _, topics = _produced(request, _body_of(request))
            self._waiting.written(topics, in_transaction=in_transaction)
        elif kind == _END_TXN:
            self._waiting.ended()

    @property
    def is_fetching(self) -> bool:
        """Whether what the broker answers is records."""
        return self._fetch is not None

    def answered_in_parts(self, part: bytes, *, is_last: bool) -> None:
        """Take a part of an answer that is far too large to be empty."""
        if is_last:
            self._answer(part)
        elif self.client.transport is not None:
            self.client.transport.write(part)

    def _is_held(self, fetch: _Fetch, frame: bytes) -> bool:
        """Hold an answer back, or ask again, if it is empty and there is time."""
        if not _is_empty(frame):
            return False
        now = self._loop.time()
        self._until = self._until or now + fetch.seconds
        if now >= self._until:
            return False
        self._held = frame
        if self._is_stale:
            self.ask_again()
        else:
            self._timer = self._loop.call_at(self._until, self._give_up)
        return True

    def ask_again(self) -> None:
        """There may be something now."""
        if not self._held:
            self._is_stale = True
            return
        self._held, self._is_stale = b"", False
        self._stop_timer()
        if self._current is not None and self._broker.transport is not None:
            self._broker.transport.write(self._current[0])

    def _give_up(self) -> None:
        held, self._held = self._held, b""
        self._answer(held)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _answer(self, frame: bytes) -> None:
        self._waiting.remove(self)
        self._stop_timer()
        self._current, self._fetch, self._held, self._is_stale = None, None, b"", False
        if self.client.transport is not None:
            self.client.transport.write(frame)
        self._next()

    def close(self) -> None:
        """End both connections."""
        self._waiting.remove(self)
        self._stop_timer()
        for side in (self.client, self._broker):
            if side.transport is not None:
                side.transport.close()


def _body_of(frame: bytes) -> int:
    """Where the body of a request begins, if its header has no tagged fields."""
    length: int = _HEADER.unpack_from(frame)[4]
    return _HEADER.size + max(length, 0)


async def _serve(port: int) -> None:
    waiting = _Waiting()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Session(waiting, port).client, HOST, port)
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True, help="of both addresses")
    asyncio.run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
