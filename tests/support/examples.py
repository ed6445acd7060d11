"""How many examples property tests try, by the profile of hypothesis.

``--hypothesis-profile=quick``, as ``make test`` has it, tries a fifth of them; the rest of a test's
settings is the same.  ``MILLSTREAM_EXAMPLES=10`` tries ten times as many, other ones at each run.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

__all__ = ["FULL", "QUICK", "examples", "register_profiles", "tried"]

FULL: Final = "full"
QUICK: Final = "quick"
#: Of each profile: what a test with 100 examples tries.
_SHARE: Final = {FULL: 100, QUICK: 20}
#: That a test tries at least, if it has as many.
_LEAST: Final = 5
_TIMES: Final = int(os.environ.get("MILLSTREAM_EXAMPLES", "1"))


def register_profiles(*, derandomize: bool) -> None:
    """Register the profiles.

    Args:
        derandomize: try the same examples each time, whatever the machine and however slow it is.
    """
    for name, share in _SHARE.items():
        settings.register_profile(
            name,
            max_examples=share * _TIMES,
            derandomize=derandomize and _TIMES == 1,
            database=None,
            deadline=None,
            print_blob=True,
            # All examples of a test share its fixtures, as the tests know.  A machine that is busy
            # with other work makes examples slowly.
            suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        )


def examples(count: int) -> settings:
    """Try so many examples, or the share of them that the profile has."""
    return settings(max_examples=tried(count))


def tried(count: int) -> int:
    """How many of so many examples the profile tries."""
    return max(count * settings().max_examples // _SHARE[FULL], min(count, _LEAST))
