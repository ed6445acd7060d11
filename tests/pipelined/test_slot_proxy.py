"""The proxy does to connections what tests ask for, and nothing else."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.slot_proxy import SlotProxy, stalled

from millstream.errors import SlotLostError
from millstream.runtime.pipelined.transport import TcpTransport, connect_slots, listen

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER_SIZE = 8
DEADLINE = 30.0


class Slots:
    """Three slots whose connections go through a proxy."""

    def __init__(self, proxy: SlotProxy) -> None:
        self.proxy = proxy
        listeners = [listen("127.0.0.1", 3) for _ in range(3)]
        addresses = [proxy.route(i, each.getsockname()[:2]) for i, each in enumerate(listeners)]
        made: dict[int, TcpTransport] = {}

        def connect(slot: int) -> None:
            connections = connect_slots(slot, listeners[slot], addresses, b"t" * 16, "run")
            made[slot] = TcpTransport(slot, connections, HEADER_SIZE)

        threads = [threading.Thread(target=connect, args=(slot,)) for slot in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
        self.transports = [made[slot] for slot in range(3)]
        self.inboxes: list[list[tuple[int, int]]] = [[], [], []]

    def send(self, source: int, target: int, number: int, payload: bytes = b"") -> None:
        self.transports[source].send(target, number.to_bytes(HEADER_SIZE, "big"), payload)

    def receive(self, slot: int, count: int, deadline: float = DEADLINE) -> list[tuple[int, int]]:
        """Source and number of at least so many frames, or of those that come until then."""
        until = time.monotonic() + deadline
        while len(self.inboxes[slot]) < count and time.monotonic() < until:
            for transport, inbox in zip(self.transports, self.inboxes, strict=True):
                came = transport.poll(0.001)
                inbox += [(source, int.from_bytes(header, "big")) for source, header, _ in came]
        found, self.inboxes[slot] = self.inboxes[slot], []
        return found


@pytest.fixture
def slots() -> Iterator[Slots]:
    with SlotProxy(seed=5) as proxy:
        made = Slots(proxy)
        yield made
        for transport in made.transports:
            transport.close()


def test_who_is_connected_with_whom(slots: Slots) -> None:
    assert sorted(slots.proxy.connections()) == [(1, 0), (2, 0), (2, 1)]


def test_delays_keep_the_order(slots: Slots) -> None:
    how = slots.proxy.conditions(0, 1)
    how.least_delay, how.most_delay = 0.02, 0.05
    started = time.monotonic()
    for number in range(50):
        slots.send(0, 1, number, bytes(number * 1000))
    assert slots.receive(1, 50) == [(0, number) for number in range(50)]
    assert time.monotonic() - started >= 0.02
    started = time.monotonic()
    slots.send(1, 0, 1)
    assert slots.receive(0, 1) == [(1, 1)]


def test_a_throttled_direction_takes_its_time(slots: Slots) -> None:
    slots.proxy.conditions(0, 1).bytes_per_second = 1_000_000
    started = time.monotonic()
    slots.send(0, 1, 1, bytes(150_000))
    slots.send(2, 1, 2, bytes(150_000))
    assert slots.receive(1, 2) == [(2, 2), (0, 1)]
    assert time.monotonic() - started >= 0.15


def test_one_direction_stands_still_and_the_others_go_on(slots: Slots) -> None:
    with stalled(slots.proxy.conditions(0, 1)):
        slots.send(0, 1, 1, bytes(80_000_000))
        slots.send(1, 0, 2)
        slots.send(2, 1, 3)
        assert slots.receive(0, 1) == [(1, 2)]
        assert slots.receive(1, 2, deadline=0.1) == [(2, 3)]
        # The proxy takes no more than its fill, and systems some megabytes.
        assert slots.transports[0].queued() > 0
    assert slots.receive(1, 1) == [(0, 1)]


def test_a_cut_connection_is_lost_to_both(slots: Slots) -> None:
    assert slots.proxy.cut(2, 0) == 1
    assert slots.proxy.cut(2, 0) == 0
    for slot, other in ((0, 2), (2, 0)):
        with pytest.raises(SlotLostError, match=f"slot {slot} .* slot {other}"):
            _poll_until_lost(slots.transports[slot])
    slots.send(0, 1, 7)
    assert [header for _, header, _ in slots.transports[1].poll(DEADLINE)] == [bytes(7) + b"\7"]


def test_a_slot_that_ends_ends_through_the_proxy_too(slots: Slots) -> None:
    slots.send(2, 0, 9, bytes(1_000_000))
    assert slots.receive(0, 1) == [(2, 9)]
    slots.transports[2]._connections[0].sock.close()
    with pytest.raises(SlotLostError, match="slot 2"):
        _poll_until_lost(slots.transports[0])


def _poll_until_lost(transport: TcpTransport) -> None:
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        transport.poll(0.01)
