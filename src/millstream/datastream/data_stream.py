"""DataStream: the user's handle on a transformation; nothing runs before ``env.execute()``."""

from __future__ import annotations

import itertools
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn, overload

from millstream.contracts.sink import Sink
from millstream.datastream.collecting import CloseableIterator as CloseableIterator  # noqa: TC001 - PyFlink has it here
from millstream.datastream.named_operator import NamedOperator, describe_stream, raise_missing
from millstream.datastream.type_choice import (
    as_key_selector,
    as_partitioner,
    check_strategy,
    choose_output_type,
    method_of,
    projection,
    require,
)
from millstream.errors import ProgramError
from millstream.functions.functions import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    SinkFunction,
)
from millstream.graph.model import Partitioning, caller_location
from millstream.graph.transformation import (
    OneInputTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    SinkTransformation,
    UnionTransformation,
)
from millstream.runtime.operators import (
    FilterFactory,
    FlatMapFactory,
    MapBatchesFactory,
    MapFactory,
    ProcessFactory,
    SinkFactory,
    TimestampsWatermarksFactory,
)
from millstream.types.output_tag import OutputTag
from millstream.types.type_information import check_type_argument
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from millstream.configuration.execution_config import ExecutionConfig
    from millstream.contracts.operator import OperatorFactory
    from millstream.datastream.broadcast_stream import (
        BroadcastConnectedStream as BroadcastConnectedStream,
    )
    from millstream.datastream.broadcast_stream import BroadcastStream as BroadcastStream
    from millstream.datastream.connected_streams import ConnectedStreams as ConnectedStreams
    from millstream.datastream.environment import StreamExecutionEnvironment
    from millstream.datastream.keyed_stream import KeyedStream as KeyedStream
    from millstream.datastream.windowed_join import CoGroupedStreams, JoinedStreams
    from millstream.datastream.windowed_stream import AllWindowedStream as AllWindowedStream
    from millstream.datastream.windowed_stream import WindowedStream as WindowedStream
    from millstream.functions.descriptors import MapStateDescriptor
    from millstream.functions.watermark_strategy import WatermarkStrategy
    from millstream.functions.window_assigners import WindowAssigner
    from millstream.graph.transformation import Transformation
    from millstream.types.types import TypeInformation


class DataStreamSink(NamedOperator):
    """The handle on a sink that ``sink_to`` and ``print`` return."""

    def __repr__(self) -> str:
        """Name, parallelism and place."""
        physical = self._physical("repr")
        own = f", parallelism {physical.parallelism}" if physical.parallelism else ""
        return f"<DataStreamSink '{physical.name}'{own}, {physical.location}>"


#: Streams of other kinds, which have modules of their own.
_ELSEWHERE: Final = {
    "AllWindowedStream": "windowed_stream",
    "BroadcastConnectedStream": "broadcast_stream",
    "BroadcastStream": "broadcast_stream",
    "ConnectedStreams": "connected_streams",
    "KeyedStream": "keyed_stream",
    "WindowedStream": "windowed_stream",
}


def __getattr__(name: str) -> object:
    """Streams of other kinds under PyFlink's path."""
    if name not in _ELSEWHERE:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"millstream.datastream.{_ELSEWHERE[name]}"), name)


class DataStream(NamedOperator):
    """A stream of records of one type.

    Methods that take a function take a plain callable or an instance of the function class.
    ``output_type`` is the type of what the function makes; without it the type is taken from
    the function's annotations, and without those the stream is untyped (values are pickled).
    """

    def __init__(
        self, environment: StreamExecutionEnvironment, transformation: Transformation
    ) -> None:
        """Made by the environment and by other streams."""
        super().__init__(transformation)
        self._environment = environment

    def __getattr__(self, name: str) -> NoReturn:
        """Say where a method is that this kind of stream has not."""
        raise_missing(self, name)

    def __repr__(self) -> str:
        """Kind, name, type, parallelism and place: what a notebook shows of a stream."""
        return describe_stream(self)

    def get_type(self) -> TypeInformation:
        """The type of the records."""
        return self._transformation.output_type

    def get_execution_config(self) -> ExecutionConfig:
        """The settings of the environment."""
        return self._environment.get_config()

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream belongs to."""
        return self._environment

    # -- one record at a time --------------------------------------------------------------

    def map(
        self, func: Callable[..., object] | MapFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """One record in, one record out.

        Args:
            func: record -> record.
            output_type: the type of the new records.
        """
        require(func, (MapFunction,), "map")
        chosen = choose_output_type(output_type, method_of(func, "map"))
        return self._operator("Map", MapFactory(func), chosen, {"function": func})

    def flat_map(
        self,
        func: Callable[..., object] | FlatMapFunction,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """One record in, any number out.

        Args:
            func: record -> iterable of records, or None.
            output_type: the type of the new records.
        """
        require(func, (FlatMapFunction,), "flat_map")
        chosen = choose_output_type(output_type, method_of(func, "flat_map"), unwrap=True)
        return self._operator("FlatMap", FlatMapFactory(func), chosen, {"function": func})

    def filter(self, func: Callable[..., object] | FilterFunction) -> DataStream:
        """Keep the records for which ``func`` is true.  The type stays."""
        require(func, (FilterFunction,), "filter")
        return self._operator("Filter", FilterFactory(func), self.get_type(), {"function": func})

    def project(self, *field_indexes: int) -> DataStream:
        """Keep some fields of tuples or rows, in the order given.

        Args:
            field_indexes: from 0.

        Raises:
            ProgramError: the records are neither, there is no such field, or none is named.
        """
        fields, output_type = projection(self.get_type(), field_indexes)
        return self._operator("Projection", MapFactory(fields), output_type, {})

    def process(
        self, func: ProcessFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """One record in, any number out, to the main output and to side outputs.

        Args:
            func: its ``process_element`` yields records, or ``tag, value`` for a side output.
            output_type: the type of the records of the main output.
        """
        require(func, (ProcessFunction,), "process", plain=False)
        chosen = choose_output_type(output_type, func.process_element, unwrap=True)
        return self._operator("Process", ProcessFactory(func), chosen, {"function": func})

    def map_batches(
        self,
        func: Callable[[pa.RecordBatch], pa.RecordBatch],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """One Arrow record batch in, one out: for vectorised work.

        Args:
            func: batch -> batch; called with some thousand records at a time, however they
                happen to be cut.
            output_type: the type of the new records; by default that of this stream.

        Raises:
            ProgramError: one of the types has no Arrow columns.
        """
        require(func, (), "map_batches")
        check_type_argument(output_type, "the output_type of map_batches()")
        chosen = self.get_type() if output_type is None else output_type
        for what, type_info in (("the stream", self.get_type()), ("output_type", chosen)):
            if type_info.arrow_schema is None:
                message = (
                    f"map_batches() needs Arrow columns, but {what} is untyped ({type_info}); "
                    "give the operator before it, or this one, an output_type"
                )
                raise ProgramError(message)
        return self._operator("MapBatches", MapBatchesFactory(func), chosen, {"function": func})

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Give records new timestamps and the stream new watermarks.

        Raises:
            ProgramError: the strategy aligns sources, but here is none; it is no strategy.
        """
        check_strategy(watermark_strategy)
        if watermark_strategy.alignment is not None:
            message = (
                "with_watermark_alignment() makes sources wait for each other, and "
                "assign_timestamps_and_watermarks() comes after them; give the strategy to "
                "from_source()"
            )
            raise ProgramError(message)
        return self._operator(
            "Timestamps/Watermarks",
            TimestampsWatermarksFactory(watermark_strategy),
            self.get_type(),
            {"watermark strategy": watermark_strategy},
            needs_processing_time=watermark_strategy.needs_ticks,
        )

    # -- keys, unions, side outputs --------------------------------------------------------

    def key_by(
        self,
        key_selector: Callable[..., object] | KeySelector | str | int,
        key_type: TypeInformation | None = None,
    ) -> KeyedStream:
        """Bring records of one key together; keyed state and timers belong to the key.

        Args:
            key_selector: record -> key, or the name or index of a field.
            key_type: the type of the key, if it is known.

        Raises:
            ProgramError: the type has no such field.
        """
        from millstream.datastream.keyed_stream import KeyedStream

        check_type_argument(key_type, "the key_type of key_by()")
        selector = as_key_selector(key_selector, self.get_type())
        partition = self._partition(Partitioning.HASH, key_selector=selector)
        return KeyedStream(self._environment, partition, selector, key_type)

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Gather all records in windows, in one subtask."""
        from millstream.datastream.windowed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Gather every ``size`` records in a window, in one subtask; only full windows fire.

        Args:
            size: records per window.
            slide: a window begins every so many records; 0: when the last one is full.
        """
        from millstream.functions.window_assigners import (
            CountSlidingWindowAssigner,
            CountTumblingWindowAssigner,
        )

        if slide == 0:
            return self.window_all(CountTumblingWindowAssigner.of(size))
        return self.window_all(CountSlidingWindowAssigner.of(size, slide))

    def union(self, *streams: DataStream) -> DataStream:
        """This stream and others of the same type as one; records keep their order per stream.

        Raises:
            ProgramError: the types differ, or a stream belongs to another environment.
        """
        for stream in streams:
            if stream._environment is not self._environment:  # noqa: SLF001 - the same class
                message = "union() needs streams of one environment"
                raise ProgramError(message)
            if stream.get_type() != self.get_type():
                message = (
                    f"union() needs streams of one type, not {self.get_type()} and "
                    f"{stream.get_type()}; bring them to one type with map(..., output_type=...)"
                )
                raise ProgramError(message)
        if not streams:
            return self
        members = [self, *streams]
        union = UnionTransformation(
            id=self._environment.next_id(),
            location=caller_location(),
            output_type=self.get_type(),
            members=[stream._transformation for stream in members],  # noqa: SLF001 - the same class
        )
        return DataStream(self._environment, union)

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(
        self, ds: DataStream | BroadcastStream
    ) -> ConnectedStreams | BroadcastConnectedStream:
        """This stream and another, of any type, as the two inputs of one operator.

        Args:
            ds: the other stream; or what ``broadcast(descriptor)`` gave, whose records every
                subtask keeps in broadcast state.

        Raises:
            ProgramError: the streams belong to two environments, or both are keyed and their keys
                can never be equal.
        """
        from millstream.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
        from millstream.datastream.connected_streams import ConnectedStreams

        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        return ConnectedStreams(self, ds)

    def join(self, other_stream: DataStream) -> JoinedStreams:
        """Join the records of two streams that have equal keys and lie in the same window.

        Goes on with ``where(...).equal_to(...).window(...).apply(function)``.

        Raises:
            ProgramError: the streams belong to two environments.
        """
        from millstream.datastream.windowed_join import JoinedStreams

        return JoinedStreams(self, other_stream)

    def co_group(self, other_stream: DataStream) -> CoGroupedStreams:
        """As ``join``, but the function gets all records of a key and window at once.

        Raises:
            ProgramError: the streams belong to two environments.
        """
        from millstream.datastream.windowed_join import CoGroupedStreams

        return CoGroupedStreams(self, other_stream)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """The records that this operator sends to a side output.

        Raises:
            ProgramError: the stream is not the output of an operator.
        """
        given: object = output_tag  # what it really is, a type checker notwithstanding
        if not isinstance(given, OutputTag):
            message = f"get_side_output() needs the OutputTag of the side output, not {given!r}"
            raise ProgramError(message)
        physical = self._physical("get_side_output")
        known = physical.side_types.get(output_tag.tag_id)
        side = SideOutputTransformation(
            id=self._environment.next_id(),
            location=caller_location(),
            output_type=known or output_tag.type_info or Types.PICKLED_BYTE_ARRAY(),
            input=physical,
            tag=output_tag.tag_id,
        )
        return DataStream(self._environment, side)

    # -- how records reach the next operator -----------------------------------------------

    def rebalance(self) -> DataStream:
        """Deal records out evenly, in turn."""
        return self._partitioned(Partitioning.REBALANCE)

    def rescale(self) -> DataStream:
        """Deal records out in turn, each subtask to a part of the next operator's subtasks."""
        return self._partitioned(Partitioning.RESCALE)

    def shuffle(self) -> DataStream:
        """Send each record to a random subtask."""
        return self._partitioned(Partitioning.SHUFFLE)

    @overload
    def broadcast(self) -> DataStream: ...

    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream | BroadcastStream:
        """Send every record to every subtask.

        Args:
            broadcast_state_descriptor: of a state that every subtask makes of the records: another
                stream can be connected with what is returned then.
            other_broadcast_state_descriptors: of more states.

        Raises:
            ProgramError: a descriptor is no MapStateDescriptor, expires, or has the name of
                another.
        """
        stream = self._partitioned(Partitioning.BROADCAST)
        if broadcast_state_descriptor is None:
            return stream
        from millstream.datastream.broadcast_stream import BroadcastStream

        descriptors = (broadcast_state_descriptor, *other_broadcast_state_descriptors)
        return BroadcastStream(stream, descriptors)

    def global_(self) -> DataStream:
        """Send every record to the first subtask."""
        return self._partitioned(Partitioning.GLOBAL)

    def forward(self) -> DataStream:
        """Keep records in their subtask; both operators must have the same parallelism."""
        return self._partitioned(Partitioning.FORWARD)

    def partition_custom(
        self,
        partitioner: Callable[[object, int], int] | Partitioner,
        key_selector: Callable[..., object] | KeySelector | str | int,
    ) -> DataStream:
        """Send each record where the partitioner says.

        Args:
            partitioner: (key, number of subtasks) -> subtask.
            key_selector: record -> key, or the name or index of a field.
        """
        selector = as_key_selector(key_selector, self.get_type())
        chosen = as_partitioner(partitioner)
        partition = self._partition(Partitioning.CUSTOM, key_selector=selector, partitioner=chosen)
        return DataStream(self._environment, partition)

    # -- ends ------------------------------------------------------------------------------

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """End the stream in a sink."""
        given: object = sink  # what it really is, a type checker notwithstanding
        if not isinstance(given, Sink):
            message = f"sink_to() needs a Sink, not {given!r}"
            raise ProgramError(message)
        # The uid is made of the class alone: a job may write elsewhere on the same checkpoints.
        return self._sink(sink, f"Sink: {sink.describe()}", f"Sink: {type(sink).__name__}")

    def add_sink(self, sink_func: SinkFunction | Sink) -> DataStreamSink:
        """The older name of ``sink_to``."""
        return self.sink_to(sink_func.sink if isinstance(sink_func, SinkFunction) else sink_func)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each record, behind ``sink_identifier`` if given; for trying things out.

        The sink is as parallel as the stream, so that what has an order keeps it: a stream of
        parallelism 1 is printed by one subtask also in a job of higher parallelism.
        """
        from millstream.connectors.basic.print_sink import PrintSink

        name = "Sink: Print to Std. Out"
        return self._sink(PrintSink(sink_identifier), name, follows_input=True)

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[object]:
        """Run the program and give its records back, each once.

        The sink has parallelism 1, as in Flink: records come in the order of the stream, as far as
        it has one.

        Args:
            job_execution_name: the name of the job.
            limit: return a list of at most so many records, and end the job.

        Returns:
            An iterator to be closed after use (``with stream.execute_and_collect() as records``);
            a list if ``limit`` is given.
        """
        from millstream.datastream.collecting import collect_stream

        records = collect_stream(self, job_execution_name)
        if limit is None:
            return records
        with records:
            # Not zip(): it would wait for one record more than wanted.
            return list(itertools.islice(records, limit))

    # -- how it is built -------------------------------------------------------------------

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
        """A new operator behind this stream."""
        check_type_argument(output_type, f"the output_type of {name}")
        transformation = OneInputTransformation(
            id=self._environment.next_id(),
            location=caller_location(),
            output_type=output_type,
            name=name,
            kind_name=kind_name or name,
            input=self._transformation,
            factory=factory,
            combiner=combiner,
            user_code=user_code,
            needs_processing_time=needs_processing_time,
            side_types=side_types or {},
        )
        self._environment.add_transformation(transformation)
        return DataStream(self._environment, transformation)

    def _partition(
        self,
        partitioning: Partitioning,
        key_selector: Callable[[object], object] | None = None,
        partitioner: Callable[[object, int], int] | None = None,
    ) -> PartitionTransformation:
        return PartitionTransformation(
            id=self._environment.next_id(),
            location=caller_location(),
            output_type=self.get_type(),
            input=self._transformation,
            partitioning=partitioning,
            key_selector=key_selector,
            partitioner=partitioner,
        )

    def _partitioned(self, partitioning: Partitioning) -> DataStream:
        return DataStream(self._environment, self._partition(partitioning))

    def _sink(
        self, sink: Sink, name: str, kind_name: str = "", *, follows_input: bool = False
    ) -> DataStreamSink:
        transformation = SinkTransformation(
            id=self._environment.next_id(),
            location=caller_location(),
            output_type=self.get_type(),
            name=name,
            kind_name=kind_name or name,
            input=self._transformation,
            sink=sink,
            factory=SinkFactory(sink),
            follows_input=follows_input,
        )
        self._environment.add_transformation(transformation)
        return DataStreamSink(transformation)
