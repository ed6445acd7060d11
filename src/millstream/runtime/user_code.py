"""Copies, contexts and errors of user functions.

An exception out of a user function becomes a UserFunctionError that names the operator, the line of
the program, the user's file and line, and the record.
"""

from __future__ import annotations

import contextlib
import copy
import linecache
import logging
import os
import pickle
import sysconfig
import traceback
from collections.abc import Mapping
from operator import length_hint
from pathlib import Path
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.configuration import options
from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.errors import MillstreamError, ProgramError, SourceError, UserFunctionError, located
from millstream.functions.functions import (
    DistributedCache,
    Function,
    RuntimeContext,
    TimerService,
)
from millstream.functions.metric_group import MetricGroup
from millstream.graph.validation import error_context
from millstream.state.value_state import HandleStore
from millstream.types.pickling import dumps_by_value, short_repr
from millstream.types.row import Row
from millstream.types.value_check import compile_check, is_quick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext
    from millstream.functions.descriptors import StateDescriptor
    from millstream.state.keyed import KeyedState

_LOG: Final = logging.getLogger("millstream")

#: Stands for "there was no record" (None may be a record).
NO_RECORD: Final = object()

_PACKAGE_DIRECTORY: Final = str(Path(__file__).resolve().parent.parent)
#: What functions return as a rule where records are wanted; anything else is checked.
USUAL_RESULTS: Final = frozenset({list, tuple, GeneratorType})
_HARDLY_RECORDS: Final = (str, bytes, bytearray, Mapping)
#: (job, uid, topic) of the warnings that were given.
_warned: Final[set[tuple[str, str, str]]] = set()
#: Of Python itself: user code raises there, through a context manager for instance.
_STANDARD_LIBRARY: Final = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))


def private_copy(function: Any) -> Any:
    """Copy ``function`` for one subtask, so that instances in one process share no fields.

    Plain functions are not copied; what they close over is shared.

    Raises:
        ProgramError: the object cannot be copied.
    """
    try:
        return copy.deepcopy(function)
    except MillstreamError:
        raise
    except Exception as error:
        message = f"{function!r} cannot be copied for a subtask: {error}"
        raise ProgramError(message) from error


def bound_method(function: Any, name: str) -> Callable[..., Any]:
    """Return the method of a function class, or the callable itself.

    Raises:
        ProgramError: it is neither.
    """
    method = getattr(function, name, None)
    if callable(method) and (isinstance(function, Function) or not callable(function)):
        return method  # type: ignore[no-any-return] # checked by callable()
    if callable(function):
        return function  # type: ignore[no-any-return] # checked by callable()
    message = f"{function!r} has no method {name}() and cannot be called"
    raise ProgramError(message)


def functions_in(given: Any) -> list[Function]:
    """Return the functions to be opened that are in what the graph has of the user's.

    A key selector and a partitioner are methods of theirs there, and a pair of selectors has both.
    """
    owner = getattr(given, "__self__", given)
    if isinstance(owner, Function):
        return [owner]
    found = [each for part in getattr(owner, "selectors", ()) for each in functions_in(part)]
    return list({id(each): each for each in found}.values())  # both may be of one object


def open_functions(
    functions: Iterable[object], runtime_context: RuntimeContext, context: OperatorContext
) -> None:
    """Open those that are functions; plain callables have nothing to open.

    Raises:
        MillstreamError: one of them raised; names the operator.
    """
    for function in functions:
        if isinstance(function, Function):
            try:
                function.open(runtime_context)
            except Exception as error:
                raise user_error(context, error, doing="opening the function") from error


def close_functions(functions: Iterable[object], context: OperatorContext) -> None:
    """Close those that are functions.

    Raises:
        MillstreamError: one of them raised; names the operator.
    """
    for function in functions:
        if isinstance(function, Function):
            try:
                function.close()
            except Exception as error:
                raise user_error(context, error, doing="closing the function") from error


def index_reached(iterator: Iterator[object], values: Sequence[object]) -> int:
    """Return the index of the last value that a list iterator over ``values`` gave out."""
    return max(0, len(values) - length_hint(iterator) - 1)


def keys_of(
    values: Sequence[Any],
    selector: Callable[[Any], Any],
    context: OperatorContext,
    method: str = "key_by",
) -> list[Any]:
    """Take the key of each record.

    Raises:
        UserFunctionError: The selector raised; names the record.
    """
    iterator = iter(values)
    try:
        return list(map(selector, iterator))
    except Exception as error:
        record = values[index_reached(iterator, values)]
        raise user_error(context, error, record, doing=f"taking the key ({method}) of") from error


def user_error(
    context: OperatorContext,
    error: BaseException,
    record: object = NO_RECORD,
    *,
    doing: str = "processing",
    key: object = NO_RECORD,
) -> MillstreamError:
    """Make the error to raise ``from error``.

    Args:
        context: Names the operator.
        error: What the user's code raised.
        record: The record, if there was one.
        doing: What was going on: "processing", "the timer for 1000 of".
        key: The key, if there was one.
    """
    if isinstance(error, UserFunctionError) or getattr(error, "is_located", False):
        return error  # type: ignore[return-value] # of an operator behind, or a nested call
    own = isinstance(error, MillstreamError)  # what a function asked of us was refused
    parts = [f"operator {context.name!r} ({context.location}) failed while {doing}"]
    if record is not NO_RECORD:
        parts.append(f" record {short_repr(record)}")
    if key is not NO_RECORD:
        parts.append(f" (key {short_repr(key)})")
    parts.append(f": {error}" if own else f": {type(error).__name__}: {error}")
    location = user_line(error)
    if location is not None:
        parts.append(f"\n  at {location}")
    elif isinstance(error, TypeError) and str(error).endswith("object is not iterable"):
        parts.append("; the function must return an iterable of records, or yield them")
    kind = type(error) if isinstance(error, MillstreamError) else UserFunctionError
    return located(kind("".join(parts)))


def check_records(result: object, context: OperatorContext) -> None:
    """Check what a function returned as an iterable of records, where its class is unusual.

    A string, bytes or a dict is iterated, as in Flink, but hardly ever on purpose.

    Raises:
        ProgramError: it is a row.
    """
    if isinstance(result, Row):
        refuse_row(result)
    if isinstance(result, _HARDLY_RECORDS):
        parts = "keys" if isinstance(result, Mapping) else "letters"
        parts = "numbers" if isinstance(result, bytes | bytearray) else parts
        warn_once(
            context,
            "iterated",
            f"the function returned {short_repr(result)}: its {parts} become records, one each."
            " If one record is meant, yield it, or return it in a list",
        )


def warn_once(context: OperatorContext, topic: str, text: str) -> None:
    """Log a warning about an operator, once per process and topic."""
    about = (context.job_name, context.uid, topic)
    if about not in _warned:
        _warned.add(about)
        _LOG.warning("operator %r (%s): %s", context.name, context.location, text)


def refuse_row(result: object) -> None:
    """Refuse a row where an iterable of records is wanted: its fields would be the records.

    Raises:
        ProgramError: always.
    """
    message = (
        f"the function returned {short_repr(result)}, whose fields would be taken for records; "
        "yield the row, or return a list of rows"
    )
    raise ProgramError(message)


def _is_of_library(filename: str) -> bool:
    return "site-packages" in filename or filename.startswith(_STANDARD_LIBRARY)


def exit_error(error: BaseException) -> UserFunctionError:
    """Make the error of a function that asks its process to end (``sys.exit``), of its operator."""
    operator, trace = "a function", error.__traceback__
    while trace is not None:
        context = getattr(trace.tb_frame.f_locals.get("self"), "context", None)
        name, location = getattr(context, "name", None), getattr(context, "location", None)
        if name and location:
            operator = f"a function of operator {name!r} ({location})"
        trace = trace.tb_next
    message = f"{operator} has asked its process to end: {cause_of(error)}"
    if isinstance(error, SystemExit):
        message += "\n  to end the job, raise an exception; to drop a record, return without it"
    return UserFunctionError(message)


def cause_of(error: BaseException) -> str:
    """An exception of the user's code in words: its type, its text, the line that raised it."""
    line = user_line(error)
    return f"{type(error).__name__}: {error}" + ("" if line is None else f"\n  at {line}")


def user_line(error: BaseException) -> str | None:
    """Return where user code raised: the last frame that lies outside this package and libraries.

    Returns:
        "/path/job.py:12 in function: the line"; None if no such frame is there.
    """
    frames = traceback.extract_tb(error.__traceback__, limit=-50)
    outside = [f for f in frames if not f.filename.startswith(_PACKAGE_DIRECTORY)]
    own = [f for f in outside if not _is_of_library(f.filename)]
    if not own:
        # A library that a connector calls; Python's own says nothing of where in the program.
        own = [f for f in outside if not f.filename.startswith(_STANDARD_LIBRARY)]
    own = [f for f in own if not f.filename.startswith("<frozen ")]
    if not own:
        return None
    frame = own[-1]
    line = frame.line or linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"{frame.filename}:{frame.lineno} in {frame.name}: {line}"


#: Records of one output that are checked one and all, before samples are.
_ALL_OF: Final = 4_096
#: Then about so many of each batch, but not more than one of so many records.
_SAMPLE: Final = 128
_STEP: Final = 8
#: Of what the quick check lets pass; a stream of rows may not have it.
_NONE: Final = type(None)


class OutputCheck:
    """The check of one output of one operator subtask."""

    def __init__(self, context: OperatorContext, tag: str | None = None) -> None:
        output = "" if tag is None else f"side output {tag!r} of "
        self._maker = f"{output}operator {context.name!r} ({context.location})"
        kind = context.output_type if tag is None else context.side_types.get(tag)
        self._is_typed = kind is not None and kind.arrow_schema is not None
        # Even one small column per batch costs more than this, for Arrow's code has left the
        # caches when the functions have run.
        self._fits = compile_check(kind) if kind is not None and is_quick(kind) else None
        self._left = _ALL_OF
        self._turn = 0

    def __call__(self, batch: Batch) -> None:
        """Look at a batch.

        Raises:
            TypeMismatchError: a record does not fit; names operator, record, field and type.
        """
        if not self._is_typed or not batch.is_unchecked:
            return
        if self._left > 0:
            batch.check(self._maker, slice(self._left))
            self._left -= len(batch)
            return
        # Other positions in each batch: what is wrong may be periodic.
        step = max(_STEP, len(batch) // _SAMPLE)
        self._turn += 1
        which = slice(self._turn % step, None, step)
        if self._fits is not None:
            sample = batch.values[which]
            if _NONE not in map(type, sample) and all(map(self._fits, sample)):
                batch.made_by(self._maker)
                return
        batch.check(self._maker, which)


def portable_error(error: Exception) -> bytes:
    """The error, pickled, or its text if it cannot be unpickled."""
    text = "".join(traceback.format_exception(error))
    if not isinstance(error, MillstreamError):
        error.add_note(f"in worker process {os.getpid()}:\n{text}")
    try:
        content = dumps_by_value(error)
        pickle.loads(content)
    except Exception:  # noqa: BLE001 - whatever its constructor raises
        content = dumps_by_value(MillstreamError(text))
    return content


@contextlib.contextmanager
def reading(label: str, split_id: str) -> Iterator[None]:
    """Name the source and the split in what a step of reading raises.

    Raises:
        MillstreamError: the source's own, with its label; SourceError for any other exception.
    """
    try:
        with error_context(label):
            yield
    except MillstreamError:
        raise
    except Exception as error:
        message = f"{label} failed while reading split {split_id!r}: {cause_of(error)}"
        raise SourceError(message) from error


#: Namespace of timers that user functions register.
USER_TIMERS = b""
#: A time before this was computed from that of a record without a timestamp, the minimum.
_NO_TIME: Final = MIN_TIMESTAMP // 2


class Clock(TimerService):
    """Time without timers: for functions on streams that are not keyed."""

    __slots__ = ("processing_time", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_TIMESTAMP
        self.processing_time = 0

    def current_processing_time(self) -> int:
        return self.processing_time

    def current_watermark(self) -> int:
        return self.watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._refuse(timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        self._refuse(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._refuse(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._refuse(timestamp)

    @staticmethod
    def _refuse(timestamp: int) -> None:
        message = f"the timer for {timestamp} needs a keyed stream: call key_by() before process()"
        raise ProgramError(message)


def _checked_time(timestamp: object) -> int:
    """The time of a timer, if it is one: a number of milliseconds.

    Raises:
        ProgramError: it is of another type, or was computed from the timestamp of a record that
            has none.
    """
    if isinstance(timestamp, bool) or not isinstance(timestamp, int | np.integer):
        message = (
            f"the time of a timer is an int of milliseconds since 1970, not {timestamp!r}; "
            "write int(...)"
        )
        raise ProgramError(message)
    if timestamp < _NO_TIME:
        message = (
            f"the event-time timer for {timestamp} lies before all time: the record has no "
            "timestamp. Give the source a WatermarkStrategy with a timestamp assigner, or use "
            "assign_timestamps_and_watermarks(), before key_by()"
        )
        raise ProgramError(message)
    return int(timestamp)


class KeyedTimerService(Clock):
    """Time and timers of the current key."""

    __slots__ = ("_keyed", "_timers", "quiesced")

    def __init__(self, keyed: KeyedState) -> None:
        super().__init__()
        self._keyed = keyed
        self._timers = keyed.timers
        #: BATCH mode, and the key is over: new timers are ignored, as in Flink.
        self.quiesced = False

    def register_processing_time_timer(self, timestamp: int) -> None:
        if timestamp.__class__ is not int:
            timestamp = _checked_time(timestamp)
        if not self.quiesced:
            self._timers.register_processing_time(self._keyed.current_key, USER_TIMERS, timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        if timestamp.__class__ is not int or timestamp < _NO_TIME:
            timestamp = _checked_time(timestamp)
        if not self.quiesced:
            self._timers.register_event_time(self._keyed.current_key, USER_TIMERS, timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        if timestamp.__class__ is not int:
            timestamp = _checked_time(timestamp)
        self._timers.delete_processing_time(self._keyed.current_key, USER_TIMERS, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        if timestamp.__class__ is not int:
            timestamp = _checked_time(timestamp)
        self._timers.delete_event_time(self._keyed.current_key, USER_TIMERS, timestamp)


class StateAccess(HandleStore):
    """Handles to the state of the current key."""

    def __init__(self, keyed: KeyedState | None) -> None:
        """Take the state, None if the stream is not keyed."""
        self._keyed = keyed

    def handle_of(self, descriptor: StateDescriptor) -> Any:
        if self._keyed is None:
            message = f"keyed state {descriptor.name!r} needs a keyed stream: call key_by() first"
            raise ProgramError(message)
        return self._keyed.handle_of(descriptor)


class FunctionContext(StateAccess, RuntimeContext):
    """The runtime context of one operator instance."""

    def __init__(self, context: OperatorContext, keyed: KeyedState | None = None) -> None:
        super().__init__(keyed)
        self._context = context
        self.metrics = MetricGroup()

    def get_task_name(self) -> str:
        return self._context.name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._context.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._context.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._context.subtask

    def get_attempt_number(self) -> int:
        return 0

    def get_task_name_with_subtasks(self) -> str:
        context = self._context
        return f"{context.name} ({context.subtask + 1}/{context.parallelism})"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        configuration = self._context.configuration
        parameters = configuration.get(options.GLOBAL_JOB_PARAMETERS)
        if key in parameters:
            return parameters[key]
        return str(configuration.to_dict().get(key, default_value))

    def get_distributed_cache(self) -> DistributedCache:
        return DistributedCache(self._context.cached_files)

    def get_metrics_group(self) -> MetricGroup:
        return self.metrics
