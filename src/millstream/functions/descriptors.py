"""PyFlink's state descriptors; types may be left out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from millstream.configuration.flink_options import accept
from millstream.errors import ProgramError, TypeMismatchError
from millstream.types.time import Duration
from millstream.types.type_information import TypeInformation, check_type_argument
from millstream.types.value_check import compile_check, compile_setter, misfit

if TYPE_CHECKING:
    from collections.abc import Callable


class _Span(Protocol):
    """A length of time: ``Time`` or ``Duration``."""

    def to_milliseconds(self) -> int:
        """The length in milliseconds."""


class _Strategies(Enum):
    """Ways of cleaning up."""

    FULL_STATE_SCAN_SNAPSHOT = 0
    INCREMENTAL_CLEANUP = 1
    ROCKSDB_COMPACTION_FILTER = 2


class _CleanupStrategy:
    """The settings of one way of cleaning up."""


class _EmptyCleanupStrategy(_CleanupStrategy):
    """Nothing but that it is wanted."""


class _IncrementalCleanupStrategy(_CleanupStrategy):
    def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:  # noqa: FBT001 - PyFlink's
        self._cleanup_size = cleanup_size
        self._for_every_record = run_cleanup_for_every_record

    def get_cleanup_size(self) -> int:
        """How many entries are looked at each time."""
        return self._cleanup_size

    def run_cleanup_for_every_record(self) -> bool:
        """Return whether that is at every record."""
        return self._for_every_record


@dataclass(frozen=True)
class _RocksdbCompactFilterCleanupStrategy(_CleanupStrategy):
    query_time_after_num_entries: int
    periodic_compaction_time: _Span | None = None

    def get_query_time_after_num_entries(self) -> int:
        """How many entries are looked at before the clock is again."""
        return self.query_time_after_num_entries

    def get_periodic_compaction_time(self) -> _Span:
        """After how long a file is compacted though nothing was written to it."""
        return self.periodic_compaction_time or Duration.of_days(30)


class _CleanupStrategies:
    """The settings of cleaning up expired state."""

    Strategies: Final = _Strategies
    CleanupStrategy: Final = _CleanupStrategy
    EmptyCleanupStrategy: Final = _EmptyCleanupStrategy
    IncrementalCleanupStrategy: Final = _IncrementalCleanupStrategy
    RocksdbCompactFilterCleanupStrategy: Final = _RocksdbCompactFilterCleanupStrategy
    EMPTY_STRATEGY: Final = _EmptyCleanupStrategy()

    def __init__(
        self,
        strategies: dict[_Strategies, _CleanupStrategy],
        is_cleanup_in_background: bool,  # noqa: FBT001 - PyFlink's signature
    ) -> None:
        self._strategies = strategies
        self._in_background = is_cleanup_in_background

    def is_cleanup_in_background(self) -> bool:
        """Return whether clean-up in the background was not disabled."""
        return self._in_background

    def in_full_snapshot(self) -> bool:
        """Return whether a full snapshot should leave expired state out."""
        return _Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

    def get_incremental_cleanup_strategy(self) -> _IncrementalCleanupStrategy | None:
        """That given; Flink's default unless clean-up in the background is disabled."""
        given = self._strategies.get(_Strategies.INCREMENTAL_CLEANUP)
        if isinstance(given, _IncrementalCleanupStrategy):
            return given
        if not self._in_background:
            return None
        return _IncrementalCleanupStrategy(5, run_cleanup_for_every_record=False)

    def get_rocksdb_compact_filter_cleanup_strategy(
        self,
    ) -> _RocksdbCompactFilterCleanupStrategy | None:
        """That given; Flink's default unless clean-up in the background is disabled."""
        given = self._strategies.get(_Strategies.ROCKSDB_COMPACTION_FILTER)
        if isinstance(given, _RocksdbCompactFilterCleanupStrategy):
            return given
        return _RocksdbCompactFilterCleanupStrategy(1000) if self._in_background else None


class StateTtlConfig:
    """How long state lives after it was last written (or read).

    Expired state is removed when it is read, and in the background.  Processing time is taken once
    per micro-batch, or every few milliseconds in long-running tasks.  By event time, a value
    expires when the watermark passes its last access by the time to live; an access has the
    timestamp of the record or event-time timer, or the watermark if that is later.
    """

    class UpdateType(Enum):
        """The accesses that prolong the life of a value."""

        Disabled = 0
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """The visibility of an expired value that is not removed yet."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """The clock of the time to live.  PyFlink has processing time only."""

        ProcessingTime = 0
        EventTime = 1

    CleanupStrategies: Final = _CleanupStrategies

    def __init__(
        self,
        update_type: UpdateType,
        state_visibility: StateVisibility,
        ttl_time_characteristic: TtlTimeCharacteristic,
        ttl: _Span,
        cleanup_strategies: _CleanupStrategies | None = None,
    ) -> None:
        """Made by ``StateTtlConfig.new_builder(ttl)...build()``."""
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = ttl
        self._cleanup_strategies = cleanup_strategies or _CleanupStrategies(
            {}, is_cleanup_in_background=True
        )

    @staticmethod
    def new_builder(ttl: _Span) -> StateTtlConfig.Builder:
        """A builder for a time to live of ``ttl`` (a ``Time`` or ``Duration``)."""
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> UpdateType:
        """Return what prolongs the life of a value."""
        return self._update_type

    def get_state_visibility(self) -> StateVisibility:
        """Return whether expired values may be returned."""
        return self._state_visibility

    def get_ttl(self) -> _Span:
        """The time to live."""
        return self._ttl

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """Return which time counts."""
        return self._ttl_time_characteristic

    def get_cleanup_strategies(self) -> _CleanupStrategies:
        """Return what was said of cleaning up.

        Of it counts whether that happens in the background.
        """
        return self._cleanup_strategies

    def is_enabled(self) -> bool:
        """Return whether state expires at all."""
        return self._update_type is not StateTtlConfig.UpdateType.Disabled

    def __repr__(self) -> str:
        return (
            f"StateTtlConfig<update_type={self._update_type},"
            f" state_visibility={self._state_visibility},"
            f" ttl_time_characteristic={self._ttl_time_characteristic}, ttl={self._ttl}>"
        )

    class Builder:
        """Collects the settings of a ``StateTtlConfig``.

        Expired state is removed when it is read, and in the background unless that is disabled.
        How the background goes about it is the same on all backends: strategies of PyFlink are kept
        and have no effect.
        """

        def __init__(self, ttl: _Span) -> None:
            self._ttl = ttl
            self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
            self._state_visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
            self._characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            self._strategies: dict[_Strategies, _CleanupStrategy] = {}
            self._in_background = True

        def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> StateTtlConfig.Builder:
            """Set what prolongs the life of a value."""
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Let writes prolong the life of a value."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Let reads and writes prolong the life of a value."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

        def set_state_visibility(
            self, state_visibility: StateTtlConfig.StateVisibility
        ) -> StateTtlConfig.Builder:
            """Set whether expired values may be returned."""
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Return an expired value once more if it is still there."""
            return self.set_state_visibility(
                StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
            )

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """Never return an expired value."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            """Set which time counts."""
            self._characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Let processing time count."""
            return self.set_ttl_time_characteristic(
                StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            )

        def use_event_time(self) -> StateTtlConfig.Builder:
            """Let event time count, in keyed process functions; PyFlink does not have it."""
            return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.EventTime)

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Remove all expired entries before each checkpoint, so that none is in a snapshot.

            On both state backends, all entries of the state are read for it.
            """
            self._strategies[_Strategies.FULL_STATE_SCAN_SNAPSHOT] = _EmptyCleanupStrategy()
            return self

        def cleanup_incrementally(
            self,
            cleanup_size: int,
            run_cleanup_for_every_record: bool,  # noqa: FBT001 - PyFlink's signature
        ) -> StateTtlConfig.Builder:
            """Keep it; how much is looked at goes by how many keys are processed."""
            strategy = _IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record)
            return self._clean(_Strategies.INCREMENTAL_CLEANUP, strategy)

        def cleanup_in_rocksdb_compact_filter(
            self, query_time_after_num_entries: int, periodic_compaction_time: _Span | None = None
        ) -> StateTtlConfig.Builder:
            """Keep it; compaction has no filter."""
            strategy = _RocksdbCompactFilterCleanupStrategy(
                query_time_after_num_entries, periodic_compaction_time
            )
            return self._clean(_Strategies.ROCKSDB_COMPACTION_FILTER, strategy)

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Remove expired state only when it is read."""
            self._in_background = False
            return self

        def _clean(self, kind: _Strategies, strategy: _CleanupStrategy) -> StateTtlConfig.Builder:
            accept(
                "a clean-up strategy of StateTtlConfig",
                "expired state is removed in the background in the same way on all backends",
            )
            self._strategies[kind] = strategy
            return self

        def set_ttl(self, ttl: _Span) -> StateTtlConfig.Builder:
            """Set the time to live."""
            self._ttl = ttl
            return self

        def build(self) -> StateTtlConfig:
            """The finished configuration."""
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._characteristic,
                self._ttl,
                _CleanupStrategies(dict(self._strategies), self._in_background),
            )


_ADVICE = "write such a value, or declare another type in the state's descriptor"


def writer(
    kind: object, what: str, write: Callable[[Any], None] | None = None
) -> Callable[[Any], None]:
    """A function that checks one value and then hands it to ``write``.

    Args:
        kind: the type that was declared; None: nothing is checked.
        what: what is written, for the message: "state 'n'", "state 'n', map key".
        write: takes the value; None: the value is only checked.
    """
    take = write or _nothing
    check = check_of(kind, what)
    if check is None:
        return take
    fits, refuse = check

    def check_and_write(value: Any) -> None:
        if not fits(value):
            refuse(value)
        take(value)

    return check_and_write


def _nothing(value: object) -> None:
    del value


def check_of(kind: object, what: str) -> tuple[Callable[[Any], bool], Callable[[Any], None]] | None:
    """A quick predicate, and what raises for a value that it is false of; None: any value fits."""
    if not isinstance(kind, TypeInformation):
        return None
    fits = compile_check(kind)
    return None if fits is None else (fits, partial(_refuse, kind, what))


def setter(
    kind: TypeInformation, what: str, keyed: object, values: dict[Any, Any]
) -> Callable[[Any], None]:
    """A function that checks one value and stores it under the current key.

    Args:
        kind: the type that was declared.
        what: what is written, for the message.
        keyed: has the current key in ``cache_key``.
        values: by key.
    """
    return compile_setter(kind)(keyed, values, partial(_refuse, kind, what))


def _refuse(kind: TypeInformation, what: str, value: object) -> None:
    """Raise TypeMismatchError unless the value fits after all (a numpy number, a subclass)."""
    text = misfit(kind, value, _ADVICE)
    if text is not None:
        message = f"{what} is declared as {kind}: {text}"
        raise TypeMismatchError(message)


def checked_reduce(
    reduce: Callable[[Any, Any], Any], kind: object, name: str
) -> Callable[[Any, Any], Any]:
    """``reduce``, whose results are checked if a type was declared."""
    check = writer(kind, f"state {name!r}, what its reduce function returned")
    if check is _nothing:
        return reduce

    def reduce_and_check(one: Any, other: Any) -> Any:
        result = reduce(one, other)
        check(result)
        return result

    return reduce_and_check


class CheckedAggregate:
    """An AggregateFunction whose accumulators are checked."""

    def __init__(self, function: Any, kind: object, name: str) -> None:
        """Take the function, the type of its accumulators and the name of the state."""
        self._function = function
        self._check = writer(kind, f"state {name!r}, the accumulator that add() returned")
        self.create_accumulator = function.create_accumulator
        self.get_result = function.get_result

    def add(self, value: Any, accumulator: Any) -> Any:
        """Add and check."""
        result = self._function.add(value, accumulator)
        self._check(result)
        return result


class AggregateFunctionLike(Protocol):
    """The methods of an AggregateFunction that an AggregatingState calls."""

    def create_accumulator(self) -> object:
        """A new accumulator."""

    def add(self, value: object, accumulator: object) -> object:
        """The accumulator with ``value`` added."""

    def get_result(self, accumulator: object) -> object:
        """The result of what was added."""


class StateDescriptor:
    """The name of a state, unique within its operator, and the type of what it holds."""

    #: What kind of state it is; part of what is stored, so that kinds are never mixed up.
    kind = ""

    def __init__(self, name: str, type_info: object | None = None) -> None:
        """Name the state.

        Args:
            name: unique within the operator.
            type_info: type of the values; may be left out.

        Raises:
            ProgramError: the name is not a string of at least one character.
        """
        if not isinstance(name, str) or not name:
            message = f"the name of a state must be a string of some length, not {name!r}"
            raise ProgramError(message)
        check_type_argument(type_info, f"the type of state {name!r}")
        self.name = name
        self.type_info = type_info
        self._ttl_config: StateTtlConfig | None = None

    def get_name(self) -> str:
        """The name of the state."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let the state expire."""
        self._ttl_config = ttl_config

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        """How the state expires, None if it does not."""
        config = self._ttl_config
        return config if config is not None and config.is_enabled() else None


class ValueStateDescriptor(StateDescriptor):
    """Describes one value per key."""

    kind = "value"

    def __init__(self, name: str, value_type_info: object | None = None) -> None:
        """Name the state; the type of its value may be left out."""
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """Describes one list per key."""

    kind = "list"

    def __init__(self, name: str, elem_type_info: object | None = None) -> None:
        """Name the state; the type of its elements may be left out."""
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """Describes one map per key."""

    kind = "map"

    def __init__(
        self,
        name: str,
        key_type_info: object | None = None,
        value_type_info: object | None = None,
    ) -> None:
        """Name the state; the types of map keys and values may be left out."""
        super().__init__(name, value_type_info)
        check_type_argument(key_type_info, f"the type of the map keys of state {name!r}")
        self.key_type_info = key_type_info


class ReducingStateDescriptor(StateDescriptor):
    """Describes one value per key into which others are reduced."""

    kind = "reducing"

    def __init__(self, name: str, reduce_function: object, type_info: object | None = None) -> None:
        """Name the state.

        Args:
            name: unique within the operator.
            reduce_function: a ReduceFunction or a callable of two values.
            type_info: type of the values; may be left out.

        Raises:
            ProgramError: the function is neither.
        """
        super().__init__(name, type_info)
        if not callable(getattr(reduce_function, "reduce", reduce_function)):
            message = (
                f"state {name!r}: reduce_function must be a ReduceFunction or a callable,"
                f" not {type(reduce_function).__name__}"
            )
            raise ProgramError(message)
        self._reduce_function = reduce_function

    def get_reduce_function(self) -> object:
        """The function as it was given."""
        return self._reduce_function

    @property
    def reduce(self) -> Callable[[object, object], object]:
        """The function as a plain callable, its results held to the declared type."""
        function = getattr(self._reduce_function, "reduce", self._reduce_function)
        reduce = cast("Callable[[object, object], object]", function)
        return checked_reduce(reduce, self.type_info, self.name)


class AggregatingStateDescriptor(StateDescriptor):
    """Describes one accumulator per key."""

    kind = "aggregating"

    def __init__(
        self, name: str, agg_function: object, state_type_info: object | None = None
    ) -> None:
        """Name the state.

        Args:
            name: unique within the operator.
            agg_function: an AggregateFunction.
            state_type_info: type of the accumulator; may be left out.

        Raises:
            ProgramError: the function has not the methods of an AggregateFunction.
        """
        super().__init__(name, state_type_info)
        for method in ("create_accumulator", "add", "get_result"):
            if not callable(getattr(agg_function, method, None)):
                message = (
                    f"state {name!r}: agg_function must be an AggregateFunction;"
                    f" {type(agg_function).__name__} has no method {method}"
                )
                raise ProgramError(message)
        self._agg_function = cast("AggregateFunctionLike", agg_function)

    def get_agg_function(self) -> AggregateFunctionLike:
        """The function as it was given."""
        return self._agg_function

    @property
    def aggregate(self) -> AggregateFunctionLike:
        """The function, its accumulators held to the declared type."""
        if self.type_info is None:
            return self._agg_function
        return CheckedAggregate(self._agg_function, self.type_info, self.name)
