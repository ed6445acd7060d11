"""State descriptors: what a user function asks its runtime context for.

What it is: PyFlink's descriptors, with PyFlink's signatures except that types may be left out.
Plain data, picklable.
What it is not: state.  Handles are made of descriptors by ``state/keyed.py``.

Read next: ``functions/handles.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from millstream.errors import ProgramError
from millstream.functions.declared_types import CheckedAggregate, checked_reduce
from millstream.types.type_information import check_type_argument

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.functions.state_ttl import StateTtlConfig

__all__ = [
    "AggregateFunctionLike",
    "AggregatingStateDescriptor",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "ReducingStateDescriptor",
    "StateDescriptor",
    "ValueStateDescriptor",
]


class AggregateFunctionLike(Protocol):
    """What an AggregatingState needs of an AggregateFunction."""

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
