"""Window joins and co-groups: ``join`` and ``co_group``, then ``where``, ``equal_to``, ``window``.

The records of both streams go into one window as TaggedUnion, and the function runs as a window
function that takes them apart again, so whatever a window offers, a join offers too::

    orders.join(payments).where("id").equal_to("order").window(...).apply(function)

Pairs have the window's largest timestamp.  A join drops records without a partner in their window;
a co-group calls its function once per key and window even if one side is empty, so it can express
outer joins.
"""

from __future__ import annotations

from itertools import product, starmap
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.datastream.adapters import Wrapper
from millstream.datastream.connected_streams import (
    check_key_types,
    check_streams,
    two_input_operator,
)
from millstream.datastream.keyed_stream import KeyedStream
from millstream.datastream.type_choice import choose_output_type, method_of, require
from millstream.datastream.windowed_stream import WindowedStream, WindowSettings
from millstream.functions.functions import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    WindowFunction,
)
from millstream.runtime.operators import TaggedInputsFactory, TaggedKeySelector
from millstream.runtime.user_code import bound_method
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.contracts.operator import OperatorFactory
    from millstream.datastream.data_stream import DataStream
    from millstream.functions.functions import KeySelector
    from millstream.functions.window_assigners import WindowAssigner
    from millstream.types.composite_types import TaggedUnion
    from millstream.types.types import TypeInformation


class _PairedWindowFunction(Wrapper, WindowFunction[Any, Any, Any, Any]):
    """Takes a window apart into the records of the first and of the second stream."""

    def apply(self, key: object, window: object, inputs: Iterable[TaggedUnion]) -> Iterable[Any]:
        del key, window
        sides: tuple[list[Any], list[Any]] = ([], [])
        for index, value in inputs:
            sides[index].append(value)
        return self.combine(*sides)

    def combine(self, first: list[Any], second: list[Any]) -> Iterable[Any]:
        """Return what the records of one key and window give."""
        raise NotImplementedError


class _TaggedStream(KeyedStream):
    """Both streams as one of TaggedUnion: what a WindowedStream builds its operator on."""

    def __init__(self, stream1: KeyedStream, stream2: KeyedStream, kind: str, own: object) -> None:
        """Take the streams, the kind of join, and the function as the user gave it."""
        selector = TaggedKeySelector(stream1.key_selector, stream2.key_selector)
        super().__init__(
            stream1.get_execution_environment(),
            stream1._transformation,  # noqa: SLF001 - streams of one package build each other
            selector,
            stream1.get_key_type(),
        )
        self._streams = (stream1, stream2)
        self._kind = kind
        self._own = own

    def get_type(self) -> TypeInformation:
        return Types.PICKLED_BYTE_ARRAY()

    def _operator(
        self,
        name: str,
        factory: OperatorFactory,
        output_type: TypeInformation,
        user_code: dict[str, object],
        *,
        kind_name: str | None = None,
        combiner: OperatorFactory | None = None,
        needs_processing_time: bool = False,
        side_types: dict[str, TypeInformation] | None = None,
    ) -> DataStream:
        """A window operator with two inputs."""
        del kind_name, combiner
        return two_input_operator(
            *self._streams,
            name.replace("Window", self._kind, 1),
            TaggedInputsFactory(factory),
            output_type,
            {**user_code, "function": self._own},
            kind_name=self._kind,
            needs_processing_time=needs_processing_time,
            side_types=side_types,
        )


class PairedWindows(WindowSettings):
    """Two keyed streams with a window assigner."""

    #: "Join" or "CoGroup".
    kind: str

    def __init__(
        self, stream1: KeyedStream, stream2: KeyedStream, assigner: WindowAssigner[Any, Any]
    ) -> None:
        """Made by ``EqualTo.window``."""
        super().__init__(assigner)
        self._streams = (stream1, stream2)

    def _applied(self, function: _PairedWindowFunction, output_type: TypeInformation) -> DataStream:
        tagged = _TaggedStream(*self._streams, self.kind, function.wrapped)
        windows = WindowedStream(tagged, self._assigner)._take(self)  # noqa: SLF001 - of this package
        return windows.apply(function, output_type)


_Windows = TypeVar("_Windows", bound=PairedWindows)


class EqualTo(Generic[_Windows]):
    """Two streams and their keys; the window is missing yet."""

    def __init__(self, stream1: KeyedStream, stream2: KeyedStream, made: type[_Windows]) -> None:
        """Made by ``Where.equal_to``."""
        self._streams = (stream1, stream2)
        self._made = made

    def window(self, assigner: WindowAssigner[Any, Any]) -> _Windows:
        """Gather the records of both streams in windows.

        Raises:
            ProgramError: it is no window assigner.
        """
        return self._made(*self._streams, assigner)


class Where(Generic[_Windows]):
    """Two streams and the key of the first; that of the second is missing yet."""

    def __init__(
        self, stream1: KeyedStream, stream2: DataStream, method: str, made: type[_Windows]
    ) -> None:
        """Made by ``where``."""
        self._stream1 = stream1
        self._stream2 = stream2
        self._method = method
        self._made = made

    def equal_to(
        self,
        key_selector: Callable[..., object] | KeySelector | str | int,
        key_type: TypeInformation | None = None,
    ) -> EqualTo[_Windows]:
        """Say what is the key of the second stream.

        Args:
            key_selector: record -> key, or the name or index of a field.
            key_type: the type of the key, if it is known.

        Raises:
            ProgramError: the type has no such field, or the keys can never be equal.
        """
        keyed = self._stream2.key_by(key_selector, key_type)
        check_key_types(self._stream1, keyed, self._method)
        return EqualTo(self._stream1, keyed, self._made)


class PairedStreams(Generic[_Windows]):
    """Two streams; keys and window are missing yet."""

    def __init__(
        self, input1: DataStream, input2: DataStream, method: str, made: type[_Windows]
    ) -> None:
        """Take the streams, the stream method that was called, and what it leads to."""
        check_streams(input1, input2, method)
        self._inputs = (input1, input2)
        self._method = method
        self._made = made

    def where(
        self,
        key_selector: Callable[..., object] | KeySelector | str | int,
        key_type: TypeInformation | None = None,
    ) -> Where[_Windows]:
        """Say what is the key of the first stream.

        Args:
            key_selector: record -> key, or the name or index of a field.
            key_type: the type of the key, if it is known.

        Raises:
            ProgramError: the type has no such field.
        """
        first, second = self._inputs
        return Where(first.key_by(key_selector, key_type), second, self._method, self._made)


# -- join ---


class _Joining(_PairedWindowFunction):
    """One record per pair."""

    def combine(self, first: list[Any], second: list[Any]) -> Iterable[Any]:
        """Join each record of one to each of the other."""
        return starmap(bound_method(self.wrapped, "join"), product(first, second))


class _FlatJoining(_PairedWindowFunction):
    """Any number of records per pair."""

    def combine(self, first: list[Any], second: list[Any]) -> Iterator[Any]:
        """Join each record of one to each of the other."""
        for records in starmap(bound_method(self.wrapped, "join"), product(first, second)):
            if records is not None:
                yield from records


class JoinWithWindow(PairedWindows):
    """Two keyed streams, joined within windows."""

    kind = "Join"

    def apply(
        self,
        function: JoinFunction | FlatJoinFunction | Callable[[Any, Any], object],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Call a function for every pair of a key and window.

        Args:
            function: (first, second) -> record; a FlatJoinFunction gives any number of records.
            output_type: the type of the new records.
        """
        require(function, (JoinFunction, FlatJoinFunction), "apply")
        flat = isinstance(function, FlatJoinFunction)
        chosen = choose_output_type(output_type, method_of(function, "join"), unwrap=flat)
        return self._applied(_FlatJoining(function) if flat else _Joining(function), chosen)


class JoinedStreams(PairedStreams[JoinWithWindow]):
    """Two streams that are to be joined within windows."""

    WithWindow = JoinWithWindow

    def __init__(self, input1: DataStream, input2: DataStream) -> None:
        super().__init__(input1, input2, "join", JoinWithWindow)


# -- co-group ---


class _CoGrouping(_PairedWindowFunction):
    """All records at once."""

    def combine(self, first: list[Any], second: list[Any]) -> Iterable[Any]:
        records: Iterable[Any] | None = bound_method(self.wrapped, "co_group")(first, second)
        return () if records is None else records


class CoGroupWithWindow(PairedWindows):
    """Two keyed streams, grouped within windows."""

    kind = "CoGroup"

    def apply(
        self,
        function: CoGroupFunction | Callable[[Any, Any], object],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Call a function for every key and window.

        Args:
            function: (records of the first stream, those of the second) -> iterable of records.
            output_type: the type of the new records.
        """
        require(function, (CoGroupFunction,), "apply")
        chosen = choose_output_type(output_type, method_of(function, "co_group"), unwrap=True)
        return self._applied(_CoGrouping(function), chosen)


class CoGroupedStreams(PairedStreams[CoGroupWithWindow]):
    """Two streams that are to be grouped within windows."""

    WithWindow = CoGroupWithWindow

    def __init__(self, input1: DataStream, input2: DataStream) -> None:
        super().__init__(input1, input2, "co_group", CoGroupWithWindow)
