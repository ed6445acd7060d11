"""A source that gives little at a time, and has its slots run with other constants."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.runtime.pipelined import main_loop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.contracts.source import Split

__all__ = ["InPieces"]


class InPieces(NumberSequenceSource):
    """Numbers, twenty at a time.

    Args:
        start: the first number.
        end: the last one.
        splits: how many ranges there are.
        constants: of ``runtime/pipelined/main_loop.py``, in the slots.
    """

    def __init__(
        self, start: int, end: int, *, splits: int, constants: Mapping[str, float]
    ) -> None:
        super().__init__(start, end, splits=splits)
        self._constants = dict(constants)
        self._home = os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What a slot does before its main loop begins."""
        self.__dict__.update(state)
        if os.getpid() != self._home:
            for name, value in self._constants.items():
                setattr(main_loop, name, value)

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        """At most twenty more."""
        return super().next_stop(split, start, min(limit, 20), end)
