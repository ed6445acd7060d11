"""Cuts: by what the records of an edge were shared out to subtasks, told apart between programs.

What it is: a short text per edge that a checkpoint keeps beside the records in flight on it.  Where
it is the same, and the parallelism too, each subtask's records are still its own; else today's
partitioner is asked (``runtime/frames_in_flight.py``).

An edge on which records are partly aggregated ahead of the exchange has a third word: of what they
are aggregates.  Those in flight have keys, windows and columns of the program that made them, and
can be merged by no other (``is_other_aggregation``).

What can never happen: two cuts are taken for the same that are not.  Of functions all that they do
is compared: bytecode, constants, what they enclose, and the functions that they call.  If some of
it cannot be compared (objects, modules that are not Python's own), the cut is unknown, and the same
as no other.

What it is not: the partitioning (``runtime/partitioners.py``).
"""

from __future__ import annotations

import hashlib
import sys
import types
from typing import TYPE_CHECKING, Final

from millstream.graph.model import Partitioning
from millstream.types.field_access import field_of
from millstream.types.key_columns import KeyColumns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.graph.model import JobGraph, StreamEdge

__all__ = ["UNKNOWN", "cut_of", "is_other_aggregation"]

#: The cut of which nothing is known.
UNKNOWN: Final = ""
#: In the place of a word that is not known.
_NO_WORD: Final = "?"
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
#: The package whose objects are compared by what they have.
_OWN: Final = __name__.partition(".")[0]
#: How deep functions are followed.
_DEEPEST: Final = 8


class _UnknownError(Exception):
    """Something cannot be compared."""


def cut_of(graph: JobGraph, edge: StreamEdge) -> str:
    """By what the records of an edge are shared out to subtasks.

    Args:
        graph: the job.
        edge: one of its edges.

    Returns:
        A text that another way of sharing them out does not have; ``UNKNOWN`` if there is none.
    """
    kind = edge.partitioning.name
    if edge.partitioning not in (Partitioning.HASH, Partitioning.CUSTOM):
        return kind
    digest = _digest((edge.key_selector, edge.partitioner))
    if digest == _NO_WORD:
        return UNKNOWN
    cut = f"{kind} {graph.nodes[edge.target].max_parallelism} {digest}"
    return cut if edge.combiner is None else f"{cut} {_digest(edge.combiner)}"


def is_other_aggregation(cut: str, graph: JobGraph, edge: StreamEdge) -> bool:
    """Whether partial aggregates cannot be merged by the reader of an edge.

    Args:
        cut: of the edge in the program that has made them.
        graph: the job.
        edge: as it is now.

    Returns:
        True if it is known that they cannot: nothing is said of what cannot be compared.
    """
    if edge.combiner is None:
        return True
    before, now = cut.split(" ")[2:], cut_of(graph, edge).split(" ")[2:]
    pairs = zip(before, now, strict=False)
    return any(old != new and _NO_WORD not in (old, new) for old, new in pairs)


def _digest(value: object) -> str:
    """A word for what it is; ``_NO_WORD`` if it cannot be compared."""
    try:
        how = "\n".join(_described(value, _DEEPEST))
    except (_UnknownError, ValueError):  # or it encloses what is not there yet
        return _NO_WORD
    return hashlib.sha256(how.encode()).hexdigest()[:16]


def _described(value: object, depth: int) -> Iterator[str]:
    if depth <= 0:
        raise _UnknownError
    if isinstance(value, tuple):
        yield f"{len(value)} of"
        for each in value:
            yield from _described(each, depth - 1)
    elif type(value) in _PLAIN or isinstance(value, KeyColumns):
        yield repr(value)
    elif callable(value):
        yield from _described_function(value, depth)
    elif isinstance(value, types.ModuleType) and value.__name__ in sys.stdlib_module_names:
        yield value.__name__
    elif isinstance(value, dict):
        yield from _described(tuple(value.items()), depth)
    elif type(value).__module__.partition(".")[0] == _OWN:
        yield type(value).__qualname__
        yield from _described(tuple(_attributes(value)), depth - 1)
    else:
        raise _UnknownError


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    """What an object of Millstream's own has: windows and aggregates are told apart by it."""
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    yield from ((name, getattr(value, name)) for name in names if hasattr(value, name))
    yield from getattr(value, "__dict__", {}).items()


def _described_function(function: object, depth: int) -> Iterator[str]:
    field = field_of(function) if callable(function) else None
    if field is not None:
        yield f"field {field!r}"
    elif isinstance(function, types.BuiltinFunctionType | type):
        if function.__module__ not in sys.stdlib_module_names:
            raise _UnknownError
        yield f"{function.__module__}.{function.__qualname__}"
    elif isinstance(function, types.FunctionType):
        yield from _described_code(function.__code__, function.__globals__, depth)
        enclosed = tuple(cell.cell_contents for cell in function.__closure__ or ())
        by_name = tuple((function.__kwdefaults__ or {}).items())
        yield from _described((enclosed, function.__defaults__ or (), by_name), depth)
    else:
        raise _UnknownError


def _described_code(code: types.CodeType, names: dict[str, object], depth: int) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    yield from _described_constants(code.co_consts, names, depth)
    for name in code.co_names:  # attributes have names too
        if name in names:
            yield name
            yield from _described(names[name], depth - 1)


def _described_constants(
    constants: Iterable[object], names: dict[str, object], depth: int
) -> Iterator[str]:
    for each in constants:
        if isinstance(each, types.CodeType):
            yield from _described_code(each, names, depth - 1)
        elif isinstance(each, frozenset):
            yield repr(sorted(map(repr, each)))
        else:
            yield from _described(each, depth - 1)
