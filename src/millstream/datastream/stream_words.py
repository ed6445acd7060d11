"""What streams say of themselves, and of methods that they have not.

What it is: the ``repr`` of a stream, and the message for ``stream.window(...)`` without ``key_by``.
What it is not: part of what programs call.

Read next: ``datastream/data_stream.py``.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final, NoReturn

from millstream.errors import MissingMethodError
from millstream.graph.transformation import (
    PartitionTransformation,
    PhysicalTransformation,
    SideOutputTransformation,
)

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream
    from millstream.graph.transformation import Transformation

__all__ = ["describe_stream", "raise_missing"]

_KEYED: Final = "call key_by() first"
#: Methods of other kinds of streams, and how to get there.
_ELSEWHERE: Final = {
    "window": "call key_by() first for windows per key, or window_all() for windows of all records",
    "count_window": "call key_by() first, or count_window_all() for windows of all records",
    "aggregate": "windows are aggregated: call key_by() and window(), or window_all(), first",
    "apply": "windows are evaluated by it: call key_by() and window(), or window_all(), first",
    "trigger": "windows have triggers: call key_by() and window(), or window_all(), first",
    "evictor": "windows have evictors: call key_by() and window(), or window_all(), first",
    "allowed_lateness": "windows have it: call key_by() and window(), or window_all(), first",
    "fold": "Flink has removed it; use reduce(), or aggregate() of windows",
    "split": "Flink has removed it; use process() with side outputs",
    "select": "Flink has removed it; use process() with side outputs",
    "iterate": "there are no iterations",
    "write_as_text": "use sink_to(FileSink...)",
    "write_as_csv": "use sink_to(FileSink.csv(...))",
    "write_to_socket": "there is no such sink",
    "cache": "keep results in files with sink_to(FileSink...)",
    "to_pandas": "use execute_and_collect().to_pandas(): it runs the program",
    "collect": "use execute_and_collect(): it runs the program",
    "show": "use print(), or execute_and_collect(limit=20)",
    "execute": "call execute() of the environment",
    "reduce": _KEYED,
    "sum": _KEYED,
    "min": _KEYED,
    "max": _KEYED,
    "min_by": _KEYED,
    "max_by": _KEYED,
    "interval_join": _KEYED,
    "get_key_type": _KEYED,
}


def raise_missing(stream: object, name: str) -> NoReturn:
    """Raise for an attribute that a stream has not.

    Raises:
        MissingMethodError: always; an AttributeError, too, so that ``hasattr`` works.
    """
    kind = type(stream).__name__
    message = f"'{kind}' object has no attribute '{name}'"
    near = [each for each in dir(type(stream)) if not each.startswith("_")]
    if name in _ELSEWHERE:
        message += f": {_ELSEWHERE[name]}"
    elif not name.startswith("_") and (close := difflib.get_close_matches(name, near, n=3)):
        message += f"; did you mean {' or '.join(close)}?"
    raise MissingMethodError(message, name=name, obj=stream)


def describe_stream(stream: DataStream) -> str:
    """``<DataStream 'Map' of Long, parallelism 2, job.py:12>``."""
    transformation = stream._transformation  # noqa: SLF001 - of this package
    operator = _operator_of(transformation)
    if operator is None:
        what, parallelism = "union", None
    else:
        what = f"'{operator.name}'"
        parallelism = 1 if operator.non_parallel else operator.parallelism
    if isinstance(transformation, PartitionTransformation):
        way = transformation.partitioning.value
        what = f"{what} by key" if way == "hash" else f"{what} ({way})"
    elif isinstance(transformation, SideOutputTransformation):
        what = f"side output '{transformation.tag}' of {what}"
    default = stream.get_execution_environment().get_parallelism()
    return (
        f"<{type(stream).__name__} {what} of {stream.get_type()}, "
        f"parallelism {parallelism or default}, {transformation.location}>"
    )


def _operator_of(transformation: Transformation) -> PhysicalTransformation | None:
    """The operator that a stream comes from, None if there are several."""
    while not isinstance(transformation, PhysicalTransformation):
        if len(transformation.inputs) != 1:
            return None
        transformation = transformation.inputs[0]
    return transformation
