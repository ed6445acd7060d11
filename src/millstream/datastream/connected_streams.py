"""ConnectedStreams: two streams of any types as the inputs of one operator.

If both streams are keyed, records with equal keys share the key's state and timers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.datastream.adapters import CoFlatMapAdapter, CoMapAdapter
from millstream.datastream.data_stream import DataStream
from millstream.datastream.keyed_stream import KeyedStream
from millstream.datastream.processing_time import may_use_processing_time_timers
from millstream.datastream.type_choice import choose_output_type, require
from millstream.errors import ProgramError
from millstream.functions.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from millstream.graph.model import caller_location
from millstream.graph.transformation import TwoInputTransformation
from millstream.runtime.operators import CoProcessFactory, KeyedCoProcessFactory
from millstream.types.composite_types import CompositeTypeInfo
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.contracts.operator import OperatorFactory
    from millstream.datastream.environment import StreamExecutionEnvironment
    from millstream.functions.functions import KeySelector
    from millstream.types.types import TypeInformation


class ConnectedStreams:
    """Two streams as the inputs of one operator."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        """Made by ``DataStream.connect``."""
        check_streams(stream1, stream2, "connect")
        if isinstance(stream1, KeyedStream) and isinstance(stream2, KeyedStream):
            check_key_types(stream1, stream2, "connect")
        self.stream1 = stream1
        self.stream2 = stream2

    def __repr__(self) -> str:
        """Both streams."""
        return f"<ConnectedStreams of {self.stream1!r} and {self.stream2!r}>"

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that both streams belong to."""
        return self.stream1.get_execution_environment()

    def get_first_input(self) -> DataStream:
        """The stream that ``connect`` was called on."""
        return self.stream1

    def get_second_input(self) -> DataStream:
        """The stream that was given to ``connect``."""
        return self.stream2

    def get_type1(self) -> TypeInformation:
        """The type of the records of the first input."""
        return self.stream1.get_type()

    def get_type2(self) -> TypeInformation:
        """The type of the records of the second input."""
        return self.stream2.get_type()

    def key_by(
        self,
        key_selector1: Callable[..., object] | KeySelector | str | int,
        key_selector2: Callable[..., object] | KeySelector | str | int,
        key_type: TypeInformation | None = None,
    ) -> ConnectedStreams:
        """Bring records of both inputs that have equal keys together.

        Args:
            key_selector1: record of the first input -> key, or the name or index of a field.
            key_selector2: record of the second input -> key, or the name or index of a field.
            key_type: the type of both keys, if it is known.

        Raises:
            ProgramError: a type has no such field, or the keys can never be equal.
        """
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type),
            self.stream2.key_by(key_selector2, key_type),
        )

    def map(self, func: CoMapFunction, output_type: TypeInformation | None = None) -> DataStream:
        """One record in, of either input, and at most one out: None is not emitted.

        Args:
            func: on keyed streams it may use keyed state.
            output_type: the type of the new records.
        """
        require(func, (CoMapFunction,), "map", plain=False)
        chosen = common_type(output_type, func.map1, func.map2, unwrap=False)
        return self._processed("CoMap", CoMapAdapter(func), chosen, func)

    def flat_map(
        self, func: CoFlatMapFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """One record in, of either input, and any number out.

        Args:
            func: on keyed streams it may use keyed state.
            output_type: the type of the new records.
        """
        require(func, (CoFlatMapFunction,), "flat_map", plain=False)
        chosen = common_type(output_type, func.flat_map1, func.flat_map2, unwrap=True)
        return self._processed("CoFlatMap", CoFlatMapAdapter(func), chosen, func)

    def process(
        self,
        func: CoProcessFunction | KeyedCoProcessFunction,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """One record in, of either input, any number out, to the main and to side outputs.

        Args:
            func: its methods yield records, or ``tag, value`` for a side output.  On keyed streams
                it has state and timers of the record's key.
            output_type: the type of the records of the main output.

        Raises:
            ProgramError: a KeyedCoProcessFunction on streams that are not both keyed.
        """
        require(func, (CoProcessFunction, KeyedCoProcessFunction), "process", plain=False)
        if isinstance(func, KeyedCoProcessFunction) and self._keys() is None:
            message = (
                f"{type(func).__name__} is a KeyedCoProcessFunction and needs two keyed streams; "
                "connect streams that went through key_by(), or call key_by(selector1, selector2) "
                "before process()"
            )
            raise ProgramError(message)
        chosen = common_type(output_type, func.process_element1, func.process_element2, unwrap=True)
        name = "CoProcess" if self._keys() is None else "KeyedCoProcess"
        return self._processed(name, func, chosen, func)

    def _keys(self) -> tuple[Callable[[object], object], Callable[[object], object]] | None:
        """Both key selectors; None unless both streams are keyed."""
        first, second = self.stream1, self.stream2
        if isinstance(first, KeyedStream) and isinstance(second, KeyedStream):
            return first.key_selector, second.key_selector
        return None

    def _processed(
        self,
        name: str,
        function: CoProcessFunction | KeyedCoProcessFunction,
        output_type: TypeInformation,
        own: object,
    ) -> DataStream:
        """An operator around ``function``; ``own`` is what the user gave."""
        keys = self._keys()
        factory: OperatorFactory
        if keys is None:
            factory = CoProcessFactory(function)
        else:
            factory = KeyedCoProcessFactory(function, *keys)
        return two_input_operator(
            self.stream1,
            self.stream2,
            name,
            factory,
            output_type,
            {"function": own},
            needs_processing_time=keys is not None and may_use_processing_time_timers(function),
        )


def two_input_operator(
    stream1: DataStream,
    stream2: DataStream,
    name: str,
    factory: OperatorFactory,
    output_type: TypeInformation,
    user_code: dict[str, object],
    *,
    kind_name: str | None = None,
    needs_processing_time: bool = False,
    side_types: dict[str, TypeInformation] | None = None,
) -> DataStream:
    """A new operator behind two streams.

    Args:
        stream1: its first input (index 0).
        stream2: its second input (index 1).
        name: what it is called until the user renames it.
        factory: makes its instances.
        output_type: the type of its main output.
        user_code: what of the user's is in ``factory``, by what to call it in messages.
        kind_name: what goes into the generated uid; the name by default.
        needs_processing_time: whether it wants to be called while no record comes.
        side_types: the types of side outputs that are known.
    """
    environment = stream1.get_execution_environment()
    transformation = TwoInputTransformation(
        id=environment.next_id(),
        location=caller_location(),
        output_type=output_type,
        name=name,
        kind_name=kind_name or name,
        input1=stream1._transformation,  # noqa: SLF001 - streams of one package build each other
        input2=stream2._transformation,  # noqa: SLF001
        factory=factory,
        user_code=user_code,
        needs_processing_time=needs_processing_time,
        side_types=side_types or {},
    )
    environment.add_transformation(transformation)
    return DataStream(environment, transformation)


def check_streams(stream1: DataStream, stream2: object, method: str) -> None:
    """Check that ``stream2`` can be an input beside ``stream1``.

    Raises:
        ProgramError: it is no stream, or one of another environment.
    """
    if not isinstance(stream2, DataStream):
        message = f"{method}() needs a DataStream, not {stream2!r}"
        raise ProgramError(message)
    if stream1.get_execution_environment() is not stream2.get_execution_environment():
        message = f"{method}() needs streams of one environment"
        raise ProgramError(message)


def check_key_types(stream1: KeyedStream, stream2: KeyedStream, method: str) -> None:
    """Check that keys of the two streams can be equal, as far as their types are known.

    Raises:
        ProgramError: they never are, so no record of one would ever meet one of the other.
    """
    first, second = stream1.get_key_type(), stream2.get_key_type()
    if not _can_be_equal(first, second):
        message = (
            f"{method}() needs keys of one type, but those of the first stream are {first} and "
            f"those of the second {second}, which are never equal; convert one of them in its "
            "key selector"
        )
        raise ProgramError(message)


#: Types whose values are the same Python values; FLOAT is not among them: it is rounded.
_SAME_VALUES: Final = (
    frozenset({Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.BIG_INT()}),
    frozenset({Types.STRING(), Types.CHAR()}),
)


def _can_be_equal(first: TypeInformation, second: TypeInformation) -> bool:
    """Return if two keys can be equal (in encoded form: 1, 1.0 and True are three keys)."""
    untyped = Types.PICKLED_BYTE_ARRAY()
    if first == second or untyped in (first, second):
        return True
    if isinstance(first, CompositeTypeInfo) and isinstance(second, CompositeTypeInfo):
        if type(first) is not type(second) or first.get_field_names() != second.get_field_names():
            return False
        pairs = zip(first.get_field_types(), second.get_field_types(), strict=True)
        return all(_can_be_equal(one, other) for one, other in pairs)
    return any(first in same and second in same for same in _SAME_VALUES)


def common_type(
    given: TypeInformation | None,
    function1: Callable[..., object],
    function2: Callable[..., object],
    *,
    unwrap: bool,
) -> TypeInformation:
    """The type of what both methods return; untyped if they are annotated differently."""
    first = choose_output_type(given, function1, unwrap=unwrap)
    second = choose_output_type(given, function2, unwrap=unwrap)
    return first if first == second else Types.PICKLED_BYTE_ARRAY()
