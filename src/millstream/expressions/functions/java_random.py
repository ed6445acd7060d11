"""Java's pseudo-random numbers, so that RAND with a seed gives what it gives in Flink.

What it is: the linear congruential generator that ``java.util.Random`` documents.

What it is not: fit for secrets.

Read next: ``expressions/functions/mathematics.py``.
"""

from __future__ import annotations

import secrets
from typing import Final

from millstream.expressions.integers import wrap

__all__ = ["JavaRandom"]

_MULTIPLIER: Final = 0x5DEECE66D
_INCREMENT: Final = 0xB
_MASK: Final = (1 << 48) - 1


class JavaRandom:
    """A generator; without a seed it starts anywhere."""

    def __init__(self, seed: int | None = None) -> None:
        start = secrets.randbits(48) if seed is None else seed
        self._state = (start ^ _MULTIPLIER) & _MASK

    def _next(self, bits: int) -> int:
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        return wrap(self._state >> (48 - bits), 32)

    def next_double(self) -> float:
        """A number from 0 up to 1."""
        return ((self._next(26) << 27) + self._next(27)) * 2.0**-53

    def next_int(self, bound: int) -> int:
        """An integer from 0 up to ``bound``.

        Raises:
            ValueError: the bound is not positive.
        """
        if bound <= 0:
            message = f"the bound must be positive, not {bound}"
            raise ValueError(message)
        if bound & (bound - 1) == 0:
            return (bound * self._next(31)) >> 31
        while True:
            bits = self._next(31)
            value = bits % bound
            # The last, incomplete run of numbers would favour small ones.
            if bits - value + (bound - 1) < 1 << 31:
                return value
