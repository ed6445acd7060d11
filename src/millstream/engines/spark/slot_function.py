"""The function that Spark runs as a slot: from a task of a barrier stage into ``run_slot``.

A worker that has been a slot does nothing else: its input is left unread, so that Spark discards it
with whatever the job's functions, libraries and threads have left in it.
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING

from pyspark import BarrierTaskContext

from millstream.engines.spark.presence import be_present, say_goodbye
from millstream.runtime.last_given import begin_notes
from millstream.runtime.pipelined.main_loop import run_slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from millstream.runtime.pipelined.control import Address, SlotSettings


class SlotFunction:
    """Is one slot, by the number of its partition."""

    def __init__(
        self,
        settings: Sequence[SlotSettings],
        presence: Address,
        run: Callable[[SlotSettings], None] = run_slot,
    ) -> None:
        self._settings = settings
        self._presence = presence
        self._run = run

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The body of ``mapInArrow``."""
        del rows
        context = BarrierTaskContext.get()
        own = context.partitionId()
        settings = self._settings[own]
        host = host_of(context.getTaskInfos()[own].address, settings.driver)
        be_present(settings, self._presence)
        begin_notes(settings.run_id, careful=settings.careful)
        try:
            self._run(replace(settings, host=host))
        finally:
            say_goodbye()
        yield from ()


def host_of(executor: str, driver: Address) -> str:
    """The address of a slot's machine that the other slots can reach."""
    try:
        loopback = ip_address(driver[0]).is_loopback
    except ValueError:
        loopback = driver[0] == "localhost"
    if loopback:  # so all are on one machine, and nothing needs to be open to others
        return driver[0]
    return executor.rpartition(":")[0].removeprefix("[").removesuffix("]")
