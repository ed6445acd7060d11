"""Buffer debloating: credit that follows the throughput of its consumer.

A link may carry as much as its consumer processes in a target time (one second, by default), so
that an aligned barrier waits about that long behind it, whatever a record costs.  As in Flink,
throughput leaves out the time in which nothing has come.  Credit begins small.  It grows as soon as
more is processed, and shrinks by a moving average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.configuration import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.runtime.pipelined.links import InLink

__all__ = ["CreditLimits", "Debloater"]

#: Bytes of credit of a link, at least.
_LEAST: Final = 256
#: Credit grows ahead of the period if it is to be so many times as large.
_SOON: Final = 2
#: Seconds in which something was processed that tell the throughput, at least.
_SHORTEST: Final = 0.005
#: Batches of a costly function for which there is credit, so that one comes while one is processed.
_BATCHES: Final = 2


@dataclass(frozen=True)
class CreditLimits:
    """How credit is chosen; see ``taskmanager.network.memory.buffer-debloat``."""

    #: Bytes of a link: where it begins, and the most.
    first: int
    most: int
    #: Seconds of work that a task's links should carry; between two measurements.
    target: float = 1.0
    period: float = 0.2
    #: Measurements of which the moving average consists.
    samples: int = 20
    #: Smaller changes, as a part of what it is, are not made.
    threshold: float = 0.25

    @staticmethod
    def of(configuration: Configuration, first: int, most: int) -> CreditLimits | None:
        """Read them; None: credit is the same all the time, as debloating is switched off.

        Args:
            configuration: the job's.
            first: bytes of credit of a link at the beginning.
            most: bytes of credit of a link, at most.
        """
        enabled = options.BUFFER_DEBLOAT_ENABLED
        if configuration.contains(enabled) and not configuration.get(enabled):
            return None
        return CreditLimits(
            first=min(first, most),
            most=most,
            target=configuration.get(options.BUFFER_DEBLOAT_TARGET) / 1000,
            period=configuration.get(options.BUFFER_DEBLOAT_PERIOD) / 1000,
            samples=configuration.get(options.BUFFER_DEBLOAT_SAMPLES),
            threshold=configuration.get(options.BUFFER_DEBLOAT_THRESHOLD) / 100,
        )


class Debloater:
    """Measures the throughput of one task, and sets the credit of the links into it.

    Args:
        inputs: the links.
        limits: how credit is chosen.
        now: seconds of the clock for short times.
    """

    def __init__(self, inputs: Sequence[InLink], limits: CreditLimits, now: float) -> None:
        self._inputs = inputs
        self._limits = limits
        self._looked = now
        self._had_input = False
        #: Since the last measurement: seconds in which there was something to process, what was
        #: processed, and on which links.
        self._active = 0.0
        self._bytes = self._records = 0
        self._busy: set[int] = set()
        #: The same of the measurement before.
        self._were_busy: set[int] = set()
        #: Bytes per second, smoothed; None: not known.
        self._rate: float | None = None

    def processed(self, link: InLink, size: int, records: int) -> None:
        """Take what was processed of a link; bytes of the records alone, without their frames."""
        self._bytes += size
        self._records += records
        self._busy.add(id(link))

    def look(self, now: float, *, has_input: bool, batch: int) -> list[InLink]:
        """Take the time, and set the credit anew if it is due.

        Args:
            now: seconds of the clock for short times.
            has_input: whether there is something to process.
            batch: records that the task wants at a time, whatever they cost.

        Returns:
            Links whose limits have changed.
        """
        if self._had_input:
            self._active += now - self._looked
        self._looked, self._had_input = now, has_input
        if self._active < _SHORTEST or not self._records:
            return []
        rate = self._bytes / self._active
        if self._active < self._limits.period:
            limit = self._limit(rate, batch)
            if limit < _SOON * max(link.limit for link in self._inputs):
                return []
        elif self._rate is not None and rate < self._rate:
            rate = self._rate + 2 / (self._limits.samples + 1) * (rate - self._rate)
        self._rate = rate
        changed = self._set(self._limit(rate, batch))
        self._active, self._bytes, self._records = 0.0, 0, 0
        self._were_busy, self._busy = self._busy, set()
        return changed

    def _limit(self, rate: float, batch: int) -> int:
        limits = self._limits
        wanted = rate * limits.target / len(self._busy | self._were_busy)
        batches = _BATCHES * batch * self._bytes / self._records
        return int(min(limits.most, max(_LEAST, wanted, batches)))

    def _set(self, limit: int) -> list[InLink]:
        threshold = self._limits.threshold
        changed = [
            link for link in self._inputs if abs(limit - link.limit) > threshold * link.limit
        ]
        for link in changed:
            link.limit = limit
        return changed
