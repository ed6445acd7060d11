"""The user functions of the workload ``map_filter``, the same objects for every system.

An event is anything that is indexed like the tuple ``(key, value, ts)``.
"""

from __future__ import annotations

__all__ = ["is_even", "triple"]

triple = lambda event: (event[0], event[1] * 3, event[2])  # noqa: E731 - lambdas are measured
is_even = lambda event: event[1] % 2 == 0  # noqa: E731
