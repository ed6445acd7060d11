"""The functions users write, with PyFlink's names: map, filter, process, aggregate, window.

An instance belongs to one subtask of one worker process.  ``open`` is called once per instance,
not once per epoch; fields of the instance are not checkpointed, state handles are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeAlias, TypeVar

from millstream.contracts.sink import Sink
from millstream.contracts.source import Source
from millstream.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.functions.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        StateDescriptor,
        ValueStateDescriptor,
    )
    from millstream.functions.handles import (
        AggregatingState,
        BroadcastState,
        ListState,
        MapState,
        ReadOnlyBroadcastState,
        ReducingState,
        ValueState,
    )
    from millstream.functions.metric_group import MetricGroup
    from millstream.functions.window import Window


KEY = TypeVar("KEY")
IN = TypeVar("IN")
OUT = TypeVar("OUT")
W = TypeVar("W", bound="Window")
#: A letter of its own for the nested class, as mypy wants it.
W2 = TypeVar("W2", bound="Window")


class TimeDomain(Enum):
    """The clock that a timer runs on."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class KeyedStateStore(ABC):
    """Gives handles to keyed state by descriptor."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState:
        """Return the handle of a single value per key."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        """Return the handle of a list per key."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState:
        """Return the handle of a map per key."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState:
        """Return the handle of a value per key that a reduce function folds into."""

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState:
        """Return the handle of an accumulator per key that an aggregate function folds into."""


class DistributedCache:
    """Files that the program registered, on the machine of the task.

    Args:
        files: their paths, by name.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def get_file(self, name: str) -> Path:
        """The file or directory registered under a name; only to be read.

        Raises:
            ProgramError: none is.
        """
        if name not in self._files:
            known = ", ".join(map(repr, self._files)) or "none"
            message = f"no file is registered as {name!r}; there are: {known}"
            raise ProgramError(message)
        return Path(self._files[name])


class RuntimeContext(KeyedStateStore):
    """The place where a function runs; passed to ``Function.open``."""

    @abstractmethod
    def get_task_name(self) -> str:
        """Return the operator's name."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the operator."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the number of key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Return the number of this subtask, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Return 0: attempts are distinguished by names, not numbers."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Return ``name (2/4)``, counted from 1."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return one of the program's own parameters, or else an entry of the configuration.

        The former are set by ``env.get_config().set_global_job_parameters``.
        """

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Return the root of the function's own metrics."""

    def get_distributed_cache(self) -> DistributedCache:
        """Return the files of ``env.register_cached_file``, as Flink's Java API does."""
        return DistributedCache({})


class Function(ABC):  # noqa: B024 - open and close are optional
    """The base of all function classes."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare: get state handles, load models.  Called once per instance, before records."""

    def close(self) -> None:
        """Let go of what ``open`` took.  Called once, also after a failure."""


class MapFunction(Function):
    """One record in, one record out."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """Return the record to emit."""


class FlatMapFunction(Function):
    """One record in, any number out."""

    @abstractmethod
    def flat_map(self, value: Any) -> Any:
        """Yield the records to emit, or return an iterable of them, or None."""


class FilterFunction(Function):
    """Keeps some records."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Return True to keep the record."""


class ReduceFunction(Function):
    """Folds two records into one of the same type."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """Return the combination of ``value1`` (so far) and ``value2`` (new)."""


class KeySelector(Function):
    """Takes the key out of a record."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """Return the key; the same for the same record, always."""


class Partitioner(Function):
    """Chooses the subtask for a key."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Return a number from 0 to ``num_partitions`` - 1."""


class AggregateFunction(Function):
    """Folds records into an accumulator."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return a new, empty accumulator."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the accumulator with ``value`` added (it may be changed in place)."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """Return the result so far.  The accumulator may be added to afterwards."""

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Return both accumulators in one.  Needed for windows that merge (sessions) only."""
        message = f"{type(self).__name__} has no merge(acc_a, acc_b); merging windows need one"
        raise NotImplementedError(message)


class TimerService(ABC):
    """Time and timers.  Times are milliseconds; timers need a keyed stream."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the wall-clock time as of which this epoch is processed."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the event time that the operator has reached."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` for the current key once processing time reaches ``timestamp``."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` for the current key once the watermark reaches ``timestamp``."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Take back a timer of the current key; nothing happens if there is none."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Take back a timer of the current key; nothing happens if there is none."""


_OF_RUNTIME_CONTEXT: Final = frozenset(
    {
        "get_state",
        "get_list_state",
        "get_map_state",
        "get_reducing_state",
        "get_aggregating_state",
        "get_metrics_group",
        "get_distributed_cache",
        "get_index_of_this_subtask",
        "get_job_parameter",
    }
)


class ElementContext(ABC):  # noqa: B024 - each kind of function has methods of its own
    """The base of what functions are given beside a record: it has no state of its own."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers shall still refuse it

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse what the runtime context has, with where to take it."""
            if name in _OF_RUNTIME_CONTEXT:
                message = (
                    f"the context of a record has no {name!r}: take it in open(), from the runtime"
                    " context, as in  def open(self, runtime_context): self.taken ="
                    f" runtime_context.{name}(...)"
                )
                raise AttributeError(message)
            message = f"{type(self).__qualname__!r} object has no attribute {name!r}"
            raise AttributeError(message)


class ProcessFunction(Function):
    """One record in, any number out, to the main output and to side outputs."""

    class Context(ElementContext):
        """The context of ``process_element``, valid during the call."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the time; timers need a keyed stream."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the timestamp of the record, the minimum long if it has none."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        """Yield records, or ``tag, value`` for a side output; or return a list or None."""


class KeyedProcessFunction(Function):
    """A process function on a keyed stream, with state and timers."""

    class Context(ElementContext):
        """The context of ``process_element``, valid during the call."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the record or timer."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return time and timers."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the timestamp of the record or timer."""

    class OnTimerContext(Context):
        """The context of ``on_timer``, valid during the call."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return the clock of the timer."""

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """Yield records, or ``tag, value`` for a side output; or return a list or None."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        """React to a timer; output as in ``process_element``, with the timer's timestamp."""


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Evaluates a window over all its elements."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Yield or return the records to emit."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Evaluates a window over all its elements, with time and state available."""

    class Context(ElementContext, Generic[W2]):
        """The context of ``process``, valid during the call."""

        @abstractmethod
        def window(self) -> W2:
            """Return the window that is evaluated."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in milliseconds."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the event time that the operator has reached."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """Return state of this key and window; to be cleared in ``clear``."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """Return state of this key over all windows."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT]:
        """Yield or return the records to emit."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Clear ``window_state``; called when the window is purged."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Evaluates a window of a stream without keys over all its elements."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Yield or return the records to emit."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Evaluates a window of a stream without keys, with time and state available."""

    #: What ``process`` is given beside the elements; state is that of the one subtask.
    Context = ProcessWindowFunction.Context

    @abstractmethod
    def process(
        self, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT]:
        """Yield or return the records to emit."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Clear ``window_state``; called when the window is purged."""


class BaseBroadcastProcessFunction(Function):
    """The contexts of both broadcast functions."""

    class BaseContext(ElementContext):
        """Time, for records of either stream."""

        @abstractmethod
        def timestamp(self) -> int:
            """The timestamp of the record, in milliseconds; the minimum if it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Processing time, in milliseconds."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Event time, in milliseconds; the minimum if there was no watermark yet."""

    class Context(BaseContext):
        """The context of a record of the broadcast stream."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> BroadcastState[Any, Any]:
            """A state to be read and written.

            Every subtask must change it in the same way: what is written may depend on the record
            and on the state, not on the subtask.

            Raises:
                ProgramError: ``broadcast()`` was not given such a descriptor.
            """

    class ReadOnlyContext(BaseContext):
        """The context of a record of the other stream."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState[Any, Any]:
            """A state to be read.

            Raises:
                ProgramError: ``broadcast()`` was not given such a descriptor.
            """


class BroadcastProcessFunction(BaseBroadcastProcessFunction):
    """For a stream that is not keyed."""

    class Context(BaseBroadcastProcessFunction.Context):
        """The context of a record of the broadcast stream."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """The context of a record of the other stream."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ReadOnlyContext) -> Any:
        """Yield what a record gives (``tag, value`` for a side output), or return None."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: Context) -> Any:
        """The same for a record of the broadcast stream; every subtask is given it."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction):
    """For a keyed stream: its records have keyed state and timers, those broadcast have not."""

    class Context(BaseBroadcastProcessFunction.Context):
        """The context of a record of the broadcast stream."""

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], None]
        ) -> None:
            """Have ``function(key, state)`` called for each key of this subtask that has a state.

            It may read and change the state, as in Flink's Java API (PyFlink has no such method).

            Args:
                state_descriptor: of the keyed state.
                function: or an object with a method ``process(key, state)``.

            Raises:
                ProgramError: the name is taken by another kind of state.
            """

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """The context of a record of the keyed stream."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Time, and timers of the key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the record."""

    class OnTimerContext(ReadOnlyContext):
        """The context of a timer."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return whether it is a timer of event time or of processing time."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ReadOnlyContext) -> Any:
        """Yield what a record gives (``tag, value`` for a side output), or return None."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: Context) -> Any:
        """The same for a record of the broadcast stream; every subtask is given it."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Any:
        """Yield what a timer gives, or return None."""


class CoMapFunction(Function):
    """One record in, of either input, and one record out (none if None is returned)."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Return the record to emit for a record of the first input."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Return the record to emit for a record of the second input."""


class CoFlatMapFunction(Function):
    """One record in, of either input, and any number out."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Any:
        """Yield what a record of the first input gives, or return an iterable of it, or None."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Any:
        """Yield what a record of the second input gives, or return an iterable of it, or None."""


class CoProcessFunction(Function):
    """One record in, of either input, any number out, to the main and to side outputs.

    On keyed streams it has state and timers too, but is not told the key; see
    KeyedCoProcessFunction.
    """

    Context: TypeAlias = ProcessFunction.Context

    class OnTimerContext(ProcessFunction.Context):
        """The context of ``on_timer``, valid during the call."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return the clock of the timer."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        """Yield records for one of the first input, or ``tag, value``; or return a list or None."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        """Yield records for one of the second input, as ``process_element1``."""

    def on_timer(self, timestamp: int, ctx: CoProcessFunction.OnTimerContext) -> Any:
        """React to a timer (of keyed streams); output as in ``process_element1``."""


class KeyedCoProcessFunction(Function):
    """A process function on two keyed streams, with state and timers that both share."""

    Context: TypeAlias = KeyedProcessFunction.Context
    OnTimerContext: TypeAlias = KeyedProcessFunction.OnTimerContext

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """Yield records for one of the first input, or ``tag, value``; or return a list or None."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """Yield records for one of the second input, as ``process_element1``."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        """React to a timer; output as in ``process_element1``, with the timer's timestamp."""


class ProcessJoinFunction(Function):
    """Gets the pairs of an interval join."""

    class Context(ElementContext):
        """The context of ``process_element`` of a pair, valid during the call."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """Return the timestamp of the left record, in milliseconds."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """Return the timestamp of the right record, in milliseconds."""

        @abstractmethod
        def get_timestamp(self) -> int:
            """Return the timestamp of the pair, which is the later of the two."""

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Any:
        """Yield records, or ``tag, value`` for a side output; or return a list or None."""


class JoinFunction(Function):
    """Makes one record of each pair of a window join."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """Return the record to emit for a pair."""


class FlatJoinFunction(Function):
    """Makes any number of records of each pair of a window join."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """Yield the records to emit for a pair, or return an iterable of them, or None."""


class CoGroupFunction(Function):
    """Gets all records of a key and window, of both streams; also if one of them has none."""

    @abstractmethod
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Any:
        """Yield the records to emit, or return an iterable of them, or None."""


class SourceFunction:
    """Hold a source for ``add_source``.

    Args:
        source_func: the source; in PyFlink an object or the name of a class of Java.

    Raises:
        ProgramError: it is no source of Python.
    """

    def __init__(self, source_func: Source) -> None:
        given: object = source_func
        if not isinstance(given, Source):
            message = (
                f"SourceFunction() needs a Source, not {given!r:.100}: classes of Java cannot be "
                "loaded. Write a Source (docs/how-to/custom-connectors.md)."
            )
            raise ProgramError(message)
        self.source = source_func


class SinkFunction:
    """Hold a sink for ``add_sink``.

    Args:
        sink_func: the sink; in PyFlink an object or the name of a class of Java.

    Raises:
        ProgramError: it is no sink of Python.
    """

    def __init__(self, sink_func: Sink) -> None:
        given: object = sink_func
        if not isinstance(given, Sink):
            message = (
                f"SinkFunction() needs a Sink, not {given!r:.100}: classes of Java cannot be "
                "loaded. Write a Sink (docs/how-to/custom-sinks.md)."
            )
            raise ProgramError(message)
        self.sink = sink_func
