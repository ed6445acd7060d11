"""How many random cases are tried, which ones, and how one of them is tried again.

The profile of hypothesis chooses, as for its own examples (``tests/support/examples.py``);
``MILLSTREAM_MODEL_CASES=500`` tries so many times the usual number, other ones at each factor;
``MILLSTREAM_MODEL_SEED=<seed>`` tries one case only, the one that a failure names.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from tests.support.examples import tried

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.harness import OperatorHarness

__all__ = ["cases", "state_of"]

_FACTOR = int(os.environ.get("MILLSTREAM_MODEL_CASES", "1"))
_ONE = os.environ.get("MILLSTREAM_MODEL_SEED")


def cases(count: int, *, all_of_them: bool = False) -> Iterator[tuple[random.Random, str]]:
    """Sources of chance, each with the words that tell how to have it again.

    Args:
        count: how many.
        all_of_them: whatever the profile, as what the test counts is seldom.
    """
    wanted = count if all_of_them else tried(count)
    seeds = [int(_ONE)] if _ONE is not None else range(wanted * _FACTOR)
    for seed in seeds:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        replay = f"replay with MILLSTREAM_MODEL_SEED={seed} python -m pytest '{test}'"
        # The same seed means another case in another test.
        yield random.Random(f"{seed} {test.rpartition('::')[2]}"), replay


def state_of(harness: OperatorHarness) -> list[tuple[bytes, bytes]]:
    """What is in the store, without the store's notes about itself."""
    return [entry for entry in harness.state_entries() if not entry[0].startswith(b"M")]
