"""Pickling of records, state and committables by value where plain pickle cannot.

What it is: ``dumps`` tries C pickle and falls back to cloudpickle, which can also pickle
instances of classes defined in the user's script (``__main__``): a worker has no such module.
What it is not: canonical.  Equal values may have different bytes; keys are encoded by
``state/key_groups.py``.
"""

from __future__ import annotations

import pickle
from typing import Final

import cloudpickle

__all__ = ["dumps", "loads"]

PROTOCOL: Final = 5


def dumps(value: object) -> bytes:
    """Pickle ``value``; raises whatever cloudpickle raises for what nobody can pickle."""
    try:
        return pickle.dumps(value, PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        pickled: bytes = cloudpickle.dumps(value, PROTOCOL)
        return pickled


def loads(content: bytes) -> object:
    """The inverse of ``dumps``; for bytes that this job wrote itself."""
    return pickle.loads(content)
