"""A network of slots in one process: deterministic, with delays, stalls and cuts on demand.

What it is: a ``Transport`` per slot.  Time passes only by ``step``; how long a frame takes is drawn
from a seeded generator, and frames of one link keep their order.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.errors import ProgramError, SlotLostError
from millstream.runtime.pipelined.transport import MAX_PAYLOAD, Transport

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.runtime.pipelined.transport import Received

__all__ = ["InMemoryTransport", "Network"]


@dataclass(slots=True)
class _Link:
    """What one slot sends another."""

    #: When a frame arrives, header, payload.
    frames: deque[tuple[int, bytes, bytes]] = field(default_factory=deque)
    last: int = 0
    #: Stands still until this time.
    stalled_until: int = 0


class Network:
    """Connects slots with each other.

    Args:
        slots: how many.
        seed: of the delays.
        header_size: bytes of a header.
        most_delay: steps that a frame takes at most.
    """

    def __init__(
        self, slots: int, seed: int = 0, *, header_size: int = 0, most_delay: int = 0
    ) -> None:
        self.now = 0
        self.header_size = header_size
        self._random = random.Random(seed)
        self._most_delay = most_delay
        numbers = range(slots)
        self._links = {(a, b): _Link() for a in numbers for b in numbers if a != b}
        #: Slot -> those with which its connection is cut.
        self.cut_off: dict[int, set[int]] = {number: set() for number in numbers}
        self.gone: set[int] = set()
        self._transports = [InMemoryTransport(self, number) for number in numbers]

    def transport(self, slot: int) -> InMemoryTransport:
        """The end that a slot has."""
        return self._transports[slot]

    def step(self) -> None:
        """Let time pass."""
        self.now += 1

    def stall(self, source: int, target: int, steps: int) -> None:
        """Let nothing that ``source`` sends to ``target`` arrive for some steps."""
        self._links[source, target].stalled_until = self.now + steps

    def cut(self, one: int, other: int) -> None:
        """End the connection of two slots; what is on its way in either direction is lost."""
        for a, b in ((one, other), (other, one)):
            self.cut_off[a].add(b)
            self._links[a, b].frames.clear()

    def kill(self, slot: int) -> None:
        """End all connections of a slot."""
        for other in self.cut_off:
            if other != slot:
                self.cut(slot, other)

    def clear(self, slot: int) -> None:
        """Let another slot take the place of one: what is on its way to or from it is lost."""
        for ends, link in self._links.items():
            if slot in ends:
                link.frames.clear()

    def in_flight(self, source: int, target: int) -> int:
        """Frames on their way."""
        return len(self._links[source, target].frames)

    def put(self, source: int, target: int, header: bytes, payload: bytes) -> None:
        """Send a frame."""
        if target in self.cut_off[source] or target in self.gone:
            return
        link = self._links[source, target]
        link.last = max(link.last, self.now + self._random.randint(0, self._most_delay))
        link.frames.append((link.last, header, payload))

    def take(self, target: int) -> list[Received]:
        """What has arrived at a slot."""
        found: list[Received] = []
        for source in self.cut_off:
            if source == target:
                continue
            link = self._links[source, target]
            if self.now < link.stalled_until:
                continue
            while link.frames and link.frames[0][0] <= self.now:
                _, header, payload = link.frames.popleft()
                found.append((source, header, memoryview(payload)))
        return found

    def bytes_from(self, source: int) -> int:
        """Bytes on their way from a slot."""
        return sum(
            len(header) + len(payload)
            for (a, _), link in self._links.items()
            if a == source
            for _, header, payload in link.frames
        )


class InMemoryTransport(Transport):
    """One slot's end of a ``Network``."""

    def __init__(self, network: Network, slot: int) -> None:
        self.network = network
        self._slot = slot
        #: How often the slot was woken.
        self.wakes = 0

    def send(self, slot: int, header: bytes, payload: bytes | memoryview | pa.Buffer) -> None:
        view = memoryview(payload)
        if view.nbytes > MAX_PAYLOAD:
            message = f"a frame of {view.nbytes:,} bytes for slot {slot}"
            raise ProgramError(message)
        if slot == self._slot or len(header) != self.network.header_size:
            message = f"header of {len(header)} bytes from slot {self._slot} to {slot}"
            raise ValueError(message)
        self.network.put(self._slot, slot, header, bytes(view))

    def poll(self, timeout: float) -> list[Received]:
        lost = sorted(self.network.cut_off[self._slot])
        if lost:
            message = f"slot {self._slot} has lost its connection with slot {lost[0]}: cut"
            raise SlotLostError(message)
        return self.network.take(self._slot)

    def wake(self) -> None:
        self.wakes += 1

    def queued(self) -> int:
        return self.network.bytes_from(self._slot)

    def close(self) -> None:
        self.network.gone.add(self._slot)
