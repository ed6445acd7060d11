"""Detection of processing-time timers in the bytecode of a function or trigger.

A job whose functions use none gets no micro-batches while there is no data.
"""

from __future__ import annotations

import inspect
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

from millstream.functions.functions import Function
from millstream.functions.triggers import Trigger
from millstream.functions.window_assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    GlobalWindows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


_PROCESSING = "register_processing_time_timer"
_EVENT = "register_event_time_timer"
#: Where the base classes are, whose methods use no timers.
_OURS = frozenset({Function.__module__})


def may_use_processing_time_timers(function: object) -> bool:
    """Return whether ticks of processing time are needed for ``function``.

    No, if it has no ``on_timer`` of its own, or if its class registers event-time timers and
    nowhere processing-time timers.
    """
    own = getattr(type(function), "on_timer", None)
    if own is None or own.__module__ in _OURS:
        return False
    names = set(_names(type(function)))
    return _PROCESSING in names or _EVENT not in names


def windows_need_processing_time(assigner: object, trigger: object) -> bool:
    """Return whether windows with this assigner and trigger need processing-time ticks."""
    endless = isinstance(
        assigner, GlobalWindows | CountTumblingWindowAssigner | CountSlidingWindowAssigner
    )
    if not endless and not assigner.is_event_time():  # type: ignore[attr-defined] # an assigner
        return True
    waiting = [trigger]
    while waiting:
        each = waiting.pop()
        if _PROCESSING in set(_names(type(each))):
            return True
        waiting.extend(
            inner for inner in getattr(each, "__dict__", {}).values() if isinstance(inner, Trigger)
        )
    return False


def _names(function_class: type) -> Iterator[str]:
    """Every name that the code of the class, and functions it calls by name, mention."""
    seen: set[CodeType] = set()
    for owner in function_class.__mro__:
        if owner is object or owner.__module__ in _OURS:
            continue
        for member in vars(owner).values():
            method = inspect.unwrap(member) if callable(member) else member
            if isinstance(method, FunctionType):
                yield from _names_of(method.__code__, method.__globals__, seen)


def _names_of(code: CodeType, variables: dict[str, object], seen: set[CodeType]) -> Iterator[str]:
    if code in seen:
        return
    seen.add(code)
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant, variables, seen)
    for name in code.co_names:
        called = variables.get(name)
        if isinstance(called, FunctionType):
            yield from _names_of(called.__code__, called.__globals__, seen)
