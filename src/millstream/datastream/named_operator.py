"""Settings that streams and sinks share: name, uid, parallelism; each returns the object itself."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final, NoReturn, Self

from millstream.configuration.flink_options import accept
from millstream.configuration.resources import check_max_parallelism, check_parallelism
from millstream.errors import MissingMethodError, ProgramError
from millstream.graph.transformation import (
    PartitionTransformation,
    PhysicalTransformation,
    SideOutputTransformation,
)

if TYPE_CHECKING:
    from millstream.configuration.resources import SlotSharingGroup
    from millstream.datastream.data_stream import DataStream
    from millstream.graph.transformation import Transformation


_UID_LENGTH: Final = 200
_ONE_TASK: Final = "operators of one stage share a task"


class NamedOperator:
    """Settings of the operator behind a stream or a sink."""

    def __init__(self, transformation: Transformation) -> None:
        """Take what the settings go to."""
        self._transformation = transformation

    def get_name(self) -> str:
        """The name shown in plans, metrics and messages."""
        return self._physical("get_name").name

    def name(self, name: str) -> Self:
        """Set the name shown in plans, metrics and messages."""
        self._physical("name").name = str(name)
        return self

    def uid(self, uid: str) -> Self:
        """Set what state and progress are found by when the job restarts; unique in the job.

        Raises:
            ProgramError: it is empty, too long, or could not be part of a path.
        """
        unfit = not isinstance(uid, str) or uid in {"", ".", ".."} or len(uid) > _UID_LENGTH
        if unfit or not uid.isprintable() or "/" in uid or "\\" in uid:
            message = (
                f"{uid!r} cannot be a uid: it names a directory of the checkpoint, so it has 1 to "
                f"{_UID_LENGTH} printable characters and no slash"
            )
            raise ProgramError(message)
        self._physical("uid").uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Set the uid; there is no difference between the two here."""
        return self.uid(uid_hash)

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks.

        Raises:
            ProgramError: it is not positive, or the operator only works with 1.
        """
        physical = self._physical("set_parallelism")
        if physical.non_parallel and check_parallelism(parallelism) != 1:
            message = (
                f"'{physical.name}' ({physical.location}) is not parallel: its parallelism must "
                "be 1. Set the parallelism of the operators after it."
            )
            raise ProgramError(message)
        physical.parallelism = check_parallelism(parallelism)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups: the most subtasks its state can ever be spread over."""
        physical = self._physical("set_max_parallelism")
        physical.max_parallelism = check_max_parallelism(max_parallelism)
        return self

    def force_non_parallel(self) -> Self:
        """Make the operator run with parallelism 1, always."""
        self._physical("force_non_parallel").non_parallel = True
        return self

    def set_description(self, description: str) -> Self:
        """Set a longer text about the operator."""
        self._physical("set_description").description = description
        return self

    def disable_chaining(self) -> Self:
        """Accepted for Flink's sake: operators of one stage always share a task."""
        accept("disable_chaining()", _ONE_TASK)
        return self

    def start_new_chain(self) -> Self:
        """Accepted for Flink's sake: operators of one stage always share a task."""
        accept("start_new_chain()", _ONE_TASK)
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Accepted for Flink's sake: Spark places tasks."""
        del slot_sharing_group
        accept("slot_sharing_group()", "Spark places tasks, by its own options")
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Accepted for Flink's sake: that of the job counts, for all operators."""
        del timeout_millis
        accept("set_buffer_timeout() of an operator", "that of the environment counts for all")
        return self

    def _physical(self, method: str) -> PhysicalTransformation:
        transformation = self._transformation
        if isinstance(transformation, PhysicalTransformation):
            return transformation
        message = (
            f"{method}() belongs to an operator; call it right after map(), process() and the "
            f"like, not after key_by(), union() or a partitioning ({transformation.location})"
        )
        raise ProgramError(message)


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
