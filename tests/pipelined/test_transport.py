"""What the main loop of a slot relies on, for each transport, and what TCP does to it."""

from __future__ import annotations

import contextlib
import mmap
import random
import select
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.memory_transport import InMemoryTransport, Network

from millstream.errors import ProgramError, SlotLostError
from millstream.runtime.pipelined.transport import (
    MAX_PAYLOAD,
    TcpTransport,
    Transport,
    connect_slots,
    listen,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEADER_SIZE = 12
TOKEN = b"t" * 16
DEADLINE = 30.0
#: Around what is read at once, and what is read to where it stays.
SIZES = [0, 1, 100, 4000, 65_535, 65_536, 65_537, 262_100, 262_144, 262_145, 1_000_000, 3_000_000]


class Cluster:
    """Transports of slots that are connected with each other."""

    def __init__(self, transports: list[Transport], step: Callable[[], None]) -> None:
        self.transports = transports
        self.step = step
        self._inboxes: list[list[tuple[int, bytes, bytes]]] = [[] for _ in transports]

    def turn(self) -> None:
        """Let all slots have their turns."""
        self.step()
        for transport, inbox in zip(self.transports, self._inboxes, strict=True):
            came = transport.poll(0.0005)
            inbox += [(source, header, bytes(payload)) for source, header, payload in came]

    def receive(self, slot: int, count: int) -> list[tuple[int, bytes, bytes]]:
        """What a slot receives, when it is so many frames."""
        until = time.monotonic() + DEADLINE
        while len(self._inboxes[slot]) < count:
            assert time.monotonic() < until, f"{len(self._inboxes[slot])} of {count} came"
            self.turn()
        found, self._inboxes[slot] = self._inboxes[slot], []
        return found

    def until_lost(self, slot: int) -> SlotLostError:
        until = time.monotonic() + DEADLINE
        while time.monotonic() < until:
            self.step()
            try:
                self.transports[slot].poll(0.01)
            except SlotLostError as error:
                return error
        message = "no slot was lost"
        raise AssertionError(message)


def tcp_pairs(slots: int) -> list[dict[int, socket.socket]]:
    """Per slot its connections."""
    found: list[dict[int, socket.socket]] = [{} for _ in range(slots)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for high in range(slots):
            for low in range(high):
                found[high][low] = socket.create_connection(listener.getsockname()[:2])
                found[low][high] = listener.accept()[0]
    return found


@pytest.fixture(params=["tcp", "memory"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "memory":
        network = Network(3, seed=7, header_size=HEADER_SIZE, most_delay=3)
        yield Cluster([network.transport(slot) for slot in range(3)], network.step)
        return
    transports: list[Transport] = [
        TcpTransport(slot, pairs, HEADER_SIZE) for slot, pairs in enumerate(tcp_pairs(3))
    ]
    yield Cluster(transports, lambda: None)
    for transport in transports:
        transport.close()


@pytest.fixture
def tcp() -> Iterator[Callable[[], tuple[TcpTransport, socket.socket]]]:
    """Makes a transport of slot 1, and the bare other end of its connection with slot 0."""
    with contextlib.ExitStack() as closing:

        def make() -> tuple[TcpTransport, socket.socket]:
            ours, theirs = tcp_pairs(2)
            transport = TcpTransport(1, theirs, HEADER_SIZE)
            closing.callback(transport.close)
            return transport, closing.enter_context(ours[1])

        yield make


def header(number: int) -> bytes:
    return number.to_bytes(HEADER_SIZE, "big")


def frame(number: int, payload: bytes) -> bytes:
    return struct.pack("<I", len(payload)) + header(number) + payload


def poll_until(transport: TcpTransport, count: int) -> list[tuple[int, bytes, memoryview]]:
    found: list[tuple[int, bytes, memoryview]] = []
    until = time.monotonic() + DEADLINE
    while len(found) < count:
        assert time.monotonic() < until
        found += transport.poll(0.01)
    return found


# -- of every transport


def test_frames_arrive_whole_and_in_order(cluster: Cluster) -> None:
    chance = random.Random(11)
    sent: dict[int, list[tuple[bytes, bytes]]] = {0: [], 2: []}
    sizes = SIZES * 2 + [chance.randrange(2000) for _ in range(300)]
    chance.shuffle(sizes)
    for number, size in enumerate(sizes):
        source = chance.choice([0, 2])
        payload = chance.randbytes(size)
        cluster.transports[source].send(1, header(number), payload)
        sent[source].append((header(number), payload))
    came = cluster.receive(1, len(sizes))
    for source, frames in sent.items():
        assert [(h, p) for s, h, p in came if s == source] == frames
    assert [transport.queued() for transport in cluster.transports] == [0, 0, 0]


def test_both_directions_at_once(cluster: Cluster) -> None:
    one, other = cluster.transports[:2]
    big = b"x" * 2_000_000
    for number in range(20):
        one.send(1, header(number), big)
        other.send(0, header(number), big)
    for slot in (0, 1):
        assert cluster.receive(slot, 20) == [(1 - slot, header(n), big) for n in range(20)]


@pytest.mark.parametrize(
    "payload",
    [
        b"12345678",
        memoryview(b"0123456789")[1:9],
        np.arange(100_000, dtype=np.int64).data.cast("B"),
        np.arange(12, dtype=np.int64).reshape(3, 4).data,
        pa.py_buffer(b"of arrow's"),
        pa.array(range(50_000)).buffers()[1],
    ],
)
def test_payloads_of_each_kind(cluster: Cluster, payload: bytes | memoryview | pa.Buffer) -> None:
    cluster.transports[2].send(0, header(1), payload)
    expected = bytes(memoryview(payload))
    assert cluster.receive(0, 1) == [(2, header(1), expected)]


def test_sending_never_waits_for_the_reader(cluster: Cluster) -> None:
    big = bytes(1_000_000)
    for number in range(64):
        cluster.transports[0].send(1, header(number), big)
    # Systems hold a few megabytes of a connection at most.
    assert 30_000_000 < cluster.transports[0].queued() <= 64 * (len(big) + 4 + HEADER_SIZE)
    # The other connections go on meanwhile.
    cluster.transports[0].send(2, header(0), b"small")
    assert cluster.receive(2, 1) == [(0, header(0), b"small")]
    assert len(cluster.receive(1, 64)) == 64
    assert cluster.transports[0].queued() == 0


def test_a_slot_that_is_lost_is_named(cluster: Cluster) -> None:
    lost = cluster.transports[2]
    if isinstance(lost, InMemoryTransport):
        lost.network.kill(2)
    elif isinstance(lost, TcpTransport):
        for connection in lost._connections.values():
            connection.sock.shutdown(socket.SHUT_RDWR)
    error = cluster.until_lost(0)
    assert "slot 0" in str(error)
    assert "slot 2" in str(error)
    with pytest.raises(SlotLostError, match="slot 2"):
        cluster.transports[0].poll(0)
    cluster.transports[0].send(2, header(0), b"into the void")


def test_a_slot_that_says_goodbye_is_not_lost(cluster: Cluster) -> None:
    cluster.transports[2].send(0, header(5), b"last words" * 1000)
    cluster.transports[2].close()
    cluster.transports[2] = Network(1).transport(0)  # no other
    assert cluster.receive(0, 1) == [(2, header(5), b"last words" * 1000)]
    for _ in range(20):
        cluster.transports[0].send(2, header(0), b"are you there?" * 1000)
        cluster.turn()
    assert cluster.transports[0].queued() == 0
    cluster.transports[1].send(0, header(6), b"others go on")
    assert cluster.receive(0, 1) == [(1, header(6), b"others go on")]


def test_what_is_too_large_is_refused_before_anything_is_sent(cluster: Cluster) -> None:
    with (
        mmap.mmap(-1, MAX_PAYLOAD + 1) as untouched,
        memoryview(untouched) as view,
        pytest.raises(ProgramError, match=r"1,073,741,825 bytes for slot 1"),
    ):
        cluster.transports[0].send(1, header(0), view)
    cluster.transports[0].send(1, header(1), b"as ever")
    assert cluster.receive(1, 1) == [(0, header(1), b"as ever")]


def test_a_header_of_another_size_is_an_error_of_the_caller(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="header"):
        cluster.transports[0].send(1, b"short", b"")


# -- over TCP

Made = tuple[TcpTransport, socket.socket]


@pytest.mark.parametrize("seed", range(5))
def test_frames_that_arrive_in_pieces(tcp: Callable[[], Made], seed: int) -> None:
    transport, other = tcp()
    chance = random.Random(seed)
    payloads = [chance.randbytes(chance.choice([0, 3, 1000, 70_000, 300_000])) for _ in range(30)]
    stream = b"".join(frame(number, payload) for number, payload in enumerate(payloads))
    found: list[tuple[int, bytes, memoryview]] = []
    position = 0
    while position < len(stream):
        size = chance.choice([1, 2, 15, 17, 500, 65_536, 200_000])
        other.sendall(stream[position : position + size])
        position += size
        found += transport.poll(0)
    found += poll_until(transport, len(payloads) - len(found))
    assert [(h, bytes(p)) for _, h, p in found] == [
        (header(number), payload) for number, payload in enumerate(payloads)
    ]


class CountingSocket(socket.socket):
    """Counts what it is asked to read and write."""

    reads = 0
    writes = 0

    def recv_into(self, *arguments: Any) -> int:
        self.reads += 1
        return super().recv_into(*arguments)

    def recvmsg_into(self, *arguments: Any) -> Any:
        self.reads += 1
        return super().recvmsg_into(*arguments)

    def sendmsg(self, *arguments: Any) -> int:
        self.writes += 1
        return super().sendmsg(*arguments)


def counted() -> tuple[TcpTransport, CountingSocket, socket.socket]:
    ours, theirs = tcp_pairs(2)
    counting = CountingSocket(fileno=theirs[0].detach())
    return TcpTransport(1, {0: counting}, HEADER_SIZE), counting, ours[1]


def test_many_small_frames_cost_one_read() -> None:
    transport, counting, other = counted()
    with other, contextlib.closing(transport):
        other.sendall(b"".join(frame(number, b"payload") for number in range(1000)))
        assert len(poll_until(transport, 1000)) == 1000
        assert counting.reads <= 3  # as the system cuts them


def test_a_large_frame_is_read_to_where_it_stays(tcp: Callable[[], Made]) -> None:
    transport, other = tcp()
    payload = random.Random(1).randbytes(8 << 20)
    sending = threading.Thread(target=other.sendall, args=(frame(1, payload) + frame(2, b"x"),))
    sending.start()
    large, small = poll_until(transport, 2)
    sending.join()
    assert bytes(large[2]) == payload
    assert isinstance(large[2].obj, pa.Buffer)
    assert bytes(small[2]) == b"x"
    # And the transport keeps nothing of it.
    assert transport._connections[0]._payload.nbytes == 0


def test_small_payloads_do_not_keep_the_buffer_they_came_in(tcp: Callable[[], Made]) -> None:
    transport, other = tcp()
    other.sendall(frame(1, b"kept") + frame(2, b"x" * 1000))
    kept = poll_until(transport, 2)[0][2]
    assert isinstance(kept.obj, bytes)
    assert len(kept.obj) == 4


def test_what_is_queued_is_written_together() -> None:
    transport, counting, other = counted()
    with other, contextlib.closing(transport):
        while not transport.queued():
            transport.send(0, header(0), bytes(1 << 20))
        counting.writes = 0
        for number in range(1000):
            transport.send(0, header(number), b"small")
        assert counting.writes == 0
        until = time.monotonic() + DEADLINE
        while transport.queued() and time.monotonic() < until:
            other.recv(1 << 22)
            transport.poll(0)
        assert not transport.queued()
        assert counting.writes < 300


def test_a_lone_frame_is_written_at_once(tcp: Callable[[], Made]) -> None:
    transport, other = tcp()
    other.settimeout(DEADLINE)
    transport.send(0, header(3), b"now")
    assert other.recv(100) == frame(3, b"now")


def test_poll_waits_and_is_woken(tcp: Callable[[], Made]) -> None:
    transport, _ = tcp()
    started = time.monotonic()
    assert transport.poll(0.05) == []
    assert time.monotonic() - started >= 0.045
    # Woken before, once or often: the next poll returns, the one after it waits again.
    transport.wake()
    transport.wake()
    assert transport.poll(DEADLINE) == []
    started = time.monotonic()
    assert transport.poll(0.05) == []
    assert time.monotonic() - started >= 0.045
    waker = threading.Timer(0.05, transport.wake)
    waker.start()
    assert transport.poll(DEADLINE) == []
    waker.join()
    assert time.monotonic() - started < DEADLINE / 2


def test_a_closed_transport_is_woken_without_harm(tcp: Callable[[], Made]) -> None:
    transport, _ = tcp()
    transport.close()
    transport.wake()


@pytest.mark.parametrize("ending", ["close", "reset", "half a frame", "no frame"])
def test_each_end_of_a_connection(tcp: Callable[[], Made], ending: str) -> None:
    transport, other = tcp()
    other.sendall(frame(1, b"whole"))
    assert len(poll_until(transport, 1)) == 1
    if ending == "reset":
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif ending == "half a frame":
        other.sendall(frame(2, b"never whole")[:-3])
    elif ending == "no frame":
        other.sendall(b"\xf0" * 100)
    if ending != "no frame":
        other.close()
    error = Cluster([transport], lambda: None).until_lost(0)
    assert str(error).startswith("slot 1 has lost its connection with slot 0: ")


@pytest.mark.parametrize("ending", ["close", "reset", "half a frame", "no frame"])
def test_another_takes_the_place_of_a_slot_that_is_lost(ending: str) -> None:
    (mine, *others), (again, new) = tcp_pairs(3), tcp_pairs(2)
    other, stays = (each[0] for each in others)
    others[0][2].close()
    others[1][1].close()
    lost: list[int] = []
    transport = TcpTransport(0, mine, HEADER_SIZE, lost.append)
    if ending == "reset":
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif ending == "half a frame":
        other.sendall(frame(2, b"never whole")[:-3])
    elif ending == "no frame":
        other.sendall(b"\xf0" * 100)
    if ending != "no frame":
        other.close()
    until = time.monotonic() + DEADLINE
    while not lost:
        assert time.monotonic() < until
        transport.poll(0.01)
    assert lost == [1]
    transport.send(1, header(1), b"into the void" * 100_000)
    assert transport.queued() == 0
    stays.sendall(frame(7, b"others go on"))
    assert [each[:2] for each in poll_until(transport, 1)] == [(2, header(7))]
    transport.connected(1, again[1])
    new[0].sendall(frame(8, b"here I am"))
    assert [each[:2] for each in poll_until(transport, 1)] == [(1, header(8))]
    transport.send(1, header(9), b"welcome")
    assert new[0].recv(1 << 16) == frame(9, b"welcome")
    assert lost == [1]
    transport.close()
    for each in (other, stays, new[0]):
        each.close()


def test_a_slot_alone_has_nobody_to_talk_to() -> None:
    with contextlib.closing(TcpTransport(0, {}, HEADER_SIZE)) as transport:
        assert transport.poll(0) == []
        transport.wake()
        assert transport.poll(DEADLINE) == []


# -- getting connected


def connect_all(
    slots: int, missing: int = -1, tokens: dict[int, bytes] | None = None, timeout: float = DEADLINE
) -> list[dict[int, socket.socket] | Exception | None]:
    """What each slot's ``connect_slots`` returns or raises; strangers connect to all of them."""
    listeners = [listen("127.0.0.1", slots) for _ in range(slots)]
    addresses = [each.getsockname()[:2] for each in listeners]
    results: list[dict[int, socket.socket] | Exception | None] = [None] * slots

    def connect(slot: int) -> None:
        token = (tokens or {}).get(slot, TOKEN)
        try:
            results[slot] = connect_slots(
                slot, listeners[slot], addresses, token, "run", timeout=timeout
            )
        except SlotLostError as error:
            results[slot] = error

    strangers = [socket.create_connection(address) for address in addresses]
    strangers[0].sendall(b"GET / HTTP/1.1\r\n" * 10)
    threads = [threading.Thread(target=connect, args=(i,)) for i in range(slots) if i != missing]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    for sock in [*strangers, *listeners]:
        sock.close()
    return results


def close_all(results: list[Any]) -> None:
    for made in results:
        if isinstance(made, dict):
            for sock in made.values():
                sock.close()


def test_all_slots_connect_and_strangers_hold_nobody_up() -> None:
    started = time.monotonic()
    results = connect_all(4)
    transports = []
    for slot, made in enumerate(results):
        assert isinstance(made, dict), made
        assert set(made) == {0, 1, 2, 3} - {slot}
        transports.append(TcpTransport(slot, made, HEADER_SIZE))
    assert time.monotonic() - started < 4  # a silent stranger has 5 seconds
    for source in range(4):
        for target in {0, 1, 2, 3} - {source}:
            transports[source].send(target, header(source), bytes([target]))
    for target in range(4):
        came = sorted(
            (source, int.from_bytes(head, "big"), bytes(payload))
            for source, head, payload in poll_until(transports[target], 3)
        )
        assert came == [(s, s, bytes([target])) for s in range(4) if s != target]
    for transport in transports:
        transport.close()


def test_a_slot_that_is_not_ready_yet_is_waited_for() -> None:
    listeners = [listen("127.0.0.1", 2) for _ in range(2)]
    addresses = [each.getsockname()[:2] for each in listeners]
    made: dict[int, dict[int, socket.socket]] = {}

    def connect(slot: int) -> None:
        made[slot] = connect_slots(slot, listeners[slot], addresses, TOKEN, "run")

    early = threading.Thread(target=connect, args=(1,))
    early.start()
    # It has connected, as far as the system is concerned, and waits.
    until = time.monotonic() + DEADLINE
    while not select.select([listeners[0]], [], [], 0.1)[0]:
        assert time.monotonic() < until
    assert early.is_alive()
    connect(0)
    early.join(DEADLINE)
    assert set(made) == {0, 1}
    close_all(list(made.values()))


def test_a_slot_that_does_not_connect_is_named() -> None:
    results = connect_all(3, missing=2, timeout=0.5)
    assert [str(result) for result in results[:2]] == [
        "slot 0 was not connected to by slot 2 in time",
        "slot 1 was not connected to by slot 2 in time",
    ]


def test_a_slot_with_another_token_takes_no_part() -> None:
    results = connect_all(2, tokens={1: b"u" * 16}, timeout=0.5)
    assert str(results[0]) == "slot 0 was not connected to by slot 1 in time"
    assert "slot 1 cannot connect to slot 0 at 127.0.0.1:" in str(results[1])
    close_all(results)


def test_a_slot_that_is_gone_is_named_at_once() -> None:
    with listen("127.0.0.1", 1) as gone:
        address = gone.getsockname()[:2]
    listener = listen("127.0.0.1", 1)
    started = time.monotonic()
    addresses = [address, listener.getsockname()[:2]]
    with pytest.raises(SlotLostError, match=r"slot 1 cannot connect to slot 0 at 127"):
        connect_slots(1, listener, addresses, TOKEN, "run")
    assert time.monotonic() - started < 5
    assert listener.fileno() == -1
