"""How a slot that goes on meets those that take the places of lost ones.

What it is: a thread per newcomer that connects to it, so that the main loop does not wait; the
connection is taken in between two turns.

What it is not: the newcomer's end (``runtime/pipelined/connect.py``), nor the driver's
(``engines/pipelined/replacements.py``).

Read next: ``runtime/pipelined/transport.py``, ``engines/pipelined/replacements.py``.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from millstream.runtime.pipelined.connect import connect_to
from millstream.runtime.pipelined.messages import Met, Newcomer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from millstream.runtime.pipelined.messages import DriverMessage, SlotMessage, SlotSettings
    from millstream.runtime.pipelined.transport import TcpTransport

__all__ = ["Newcomers"]


class Newcomers:
    """Connects a slot with newcomers.

    Contract:
      1. ``hear`` is called by the thread that calls the transport.  (slot)
      2. When the driver is told that they have met, what is sent to the newcomer arrives.  (here)

    Args:
        settings: of the slot.
        transport: to the other slots.
        send: tells the driver something.
        fail: told why a newcomer cannot be reached; in another thread.
    """

    def __init__(
        self,
        settings: SlotSettings,
        transport: TcpTransport,
        send: Callable[[SlotMessage], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._send = send
        self._fail = fail
        self._made: queue.SimpleQueue[tuple[int, socket.socket]] = queue.SimpleQueue()

    def hear(self, messages: Sequence[DriverMessage]) -> list[DriverMessage]:
        """Take what the driver says of newcomers, and those that are connected by now.

        Args:
            messages: what the driver has said.

        Returns:
            What it has said of anything else.
        """
        while not self._made.empty():
            slot, connection = self._made.get()
            self._transport.connected(slot, connection)
            self._send(Met(self._settings.slot, slot))
        if not messages:
            return []
        for each in messages:
            if isinstance(each, Newcomer):
                threading.Thread(
                    target=self._connect, args=(each,), name="millstream-meet", daemon=True
                ).start()
        return [each for each in messages if not isinstance(each, Newcomer)]

    def _connect(self, newcomer: Newcomer) -> None:
        own, token, run_id = self._settings.slot, self._settings.token, self._settings.run_id
        try:
            made = connect_to(own, newcomer.slot, newcomer.address, token, run_id)
        except BaseException as error:  # noqa: BLE001 - the main loop's to raise
            self._fail(error)
            return
        self._made.put((newcomer.slot, made))
        self._transport.wake()
