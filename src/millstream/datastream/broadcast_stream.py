"""BroadcastStream and BroadcastConnectedStream: a stream whose records reach all subtasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.datastream.connected_streams import check_streams, common_type, two_input_operator
from millstream.datastream.keyed_stream import KeyedStream
from millstream.datastream.processing_time import may_use_processing_time_timers
from millstream.datastream.type_choice import require
from millstream.errors import ProgramError
from millstream.functions.descriptors import MapStateDescriptor
from millstream.functions.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from millstream.runtime.operators import BroadcastProcessFactory, KeyedBroadcastProcessFactory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.operator import OperatorFactory
    from millstream.datastream.data_stream import DataStream
    from millstream.types.types import TypeInformation


class BroadcastStream:
    """A stream that is sent to every subtask, and the states that its records write there."""

    def __init__(
        self, input_stream: DataStream, broadcast_state_descriptors: Sequence[object]
    ) -> None:
        """Made by ``DataStream.broadcast``.

        Args:
            input_stream: the stream, broadcast.
            broadcast_state_descriptors: of the states, of different names.

        Raises:
            ProgramError: one is no MapStateDescriptor, expires, or has the name of another.
        """
        found: list[MapStateDescriptor] = []
        for each in broadcast_state_descriptors:
            if not isinstance(each, MapStateDescriptor):
                message = f"broadcast() needs MapStateDescriptors, not {each!r}"
                raise ProgramError(message)
            if each.ttl_config is not None:
                message = (
                    f"broadcast state {each.name!r} cannot expire; remove its time to live, and"
                    " remove entries in process_broadcast_element"
                )
                raise ProgramError(message)
            if each.name in [other.name for other in found]:
                message = f"broadcast() was given two states called {each.name!r}"
                raise ProgramError(message)
            found.append(each)
        self.input_stream = input_stream
        self.broadcast_state_descriptors = tuple(found)

    def __repr__(self) -> str:
        """The stream, and the names of the states."""
        names = ", ".join(repr(each.name) for each in self.broadcast_state_descriptors)
        return f"<BroadcastStream of {self.input_stream!r} with {names}>"


class BroadcastConnectedStream:
    """A stream and a broadcast one as the inputs of one operator."""

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        """Made by ``DataStream.connect``.

        Raises:
            ProgramError: the streams belong to two environments.
        """
        check_streams(non_broadcast_stream, broadcast_stream.input_stream, "connect")
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = tuple(broadcast_state_descriptors)

    def __repr__(self) -> str:
        """Both streams."""
        return (
            f"<BroadcastConnectedStream of {self.non_broadcast_stream!r}"
            f" and {self.broadcast_stream!r}>"
        )

    def process(
        self,
        func: BroadcastProcessFunction | KeyedBroadcastProcessFunction,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """One record in, of either stream, any number out, to the main and to side outputs.

        Args:
            func: a KeyedBroadcastProcessFunction if the stream that is not broadcast is keyed,
                else a BroadcastProcessFunction.
            output_type: the type of the records of the main output.

        Raises:
            ProgramError: the function is of the other kind.
        """
        kinds = (BroadcastProcessFunction, KeyedBroadcastProcessFunction)
        require(func, kinds, "process", plain=False)
        stream = self.non_broadcast_stream
        keyed = isinstance(stream, KeyedStream)
        if keyed != isinstance(func, KeyedBroadcastProcessFunction):
            wanted = kinds[keyed].__name__
            message = (
                f"process() of a stream that is {'' if keyed else 'not '}keyed needs a {wanted},"
                f" and {type(func).__name__} is none"
            )
            raise ProgramError(message)
        chosen = common_type(
            output_type, func.process_element, func.process_broadcast_element, unwrap=True
        )
        descriptors = self.broadcast_state_descriptors
        factory: OperatorFactory
        if isinstance(stream, KeyedStream):
            factory = KeyedBroadcastProcessFactory(func, stream.key_selector, descriptors)
        else:
            factory = BroadcastProcessFactory(func, descriptors)
        return two_input_operator(
            stream,
            self.broadcast_stream.input_stream,
            "KeyedBroadcastProcess" if keyed else "BroadcastProcess",
            factory,
            chosen,
            {"function": func},
            needs_processing_time=keyed and may_use_processing_time_timers(func),
        )
