"""StreamHarness: runs one operator of a program on given records.

For example::

    with StreamHarness(lambda words: words.key_by(lambda w: w).process(CountWords())) as harness:
        harness.process("to", 1_000)
        harness.watermark(5_000)
        assert harness.outputs == [("to", 1)]
        assert harness.state("count", key="to") == 1

Key selector, timers, windows and state run in one subtask, without Spark.  ``end_epoch`` takes a
checkpoint and continues in a fresh instance, ``crash`` goes back to the last one.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from millstream.datastream.environment import StreamExecutionEnvironment
from millstream.errors import ProgramError
from millstream.functions.handles import ListState, MapState, ValueState
from millstream.testing.harness import OperatorHarness
from millstream.testing.sources import ScriptedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.graph.model import JobGraph, StreamNode
    from millstream.state.keyed import KeyedState
    from millstream.types.output_tag import OutputTag
    from millstream.types.types import TypeInformation

__all__ = ["StreamHarness"]

_NAME: Final = "StreamHarness"


class StreamHarness(OperatorHarness):
    """Feeds a piece of a program and records what comes out of it.

    What comes out: ``outputs`` (values), ``records`` (with timestamps), ``side_outputs(tag)``,
    ``watermarks``, and ``events``, all of it in order.
    """

    def __init__(
        self,
        build: Callable[..., Any],
        *,
        input_type: TypeInformation | None = None,
        side_outputs: Sequence[OutputTag] = (),
        configuration: Configuration | None = None,
    ) -> None:
        """Build the piece, open its function and begin the first epoch.

        Args:
            build: gets a stream, or as many as it has parameters, and returns the stream behind
                one operator, as in a program.
            input_type: the type of the records; untyped by default.
            side_outputs: tags whose records are recorded, too.
            configuration: the job's, for functions that read it.

        Raises:
            ProgramError: the piece has no operator or several, or cannot be run as written.
        """
        graph = _graph_of(build, input_type, side_outputs, configuration)
        node = _only_operator(graph)
        if node.factory is None:
            message = f"{_NAME}: '{node.name}' ({node.location}) has nothing to run"
            raise ProgramError(message)
        super().__init__(
            node.factory,
            input_type=input_type,
            output_type=node.output_type,
            side_types=node.side_types,
            max_parallelism=node.max_parallelism,
            configuration=graph.configuration,
            name=node.name,
        )

    def process_all(
        self,
        values: Sequence[object],
        timestamps: Sequence[int] | None = None,
        input_index: int = 0,
        *,
        columnar: bool | None = None,
    ) -> None:
        """Process records as one batch: of a type, they come as from a source (rows, say)."""
        if columnar is None:
            columnar = self.input_type.arrow_schema is not None
        super().process_all(values, timestamps, input_index, columnar=columnar)

    def side_outputs(self, tag: str | OutputTag) -> list[object]:
        """The values emitted on a side output so far, by its tag or the tag's id."""
        return super().side_outputs(tag if isinstance(tag, str) else tag.tag_id)

    def state(self, name: str, key: object) -> object:
        """Return what a state holds for a key: a value, a list or a dict; None if there is nothing.

        Args:
            name: of the state's descriptor.
            key: as the key selector returns it.

        Raises:
            ProgramError: the operator is not keyed, or has made no state of that name.
        """
        keyed = self._keyed()
        handle = keyed.handle(name)
        if handle is None:
            message = f"{_NAME}: there is no state {name!r}; there are {keyed.names}"
            raise ProgramError(message)
        before = keyed.current_key
        keyed.set_current_key(key)
        try:
            if isinstance(handle, ValueState):
                return handle.value()
            if isinstance(handle, MapState):
                return dict(handle.items()) or None
            found = handle.get()  # type: ignore[attr-defined] # all others have it
            return (list(found) or None) if isinstance(handle, ListState) else found
        finally:
            keyed.set_current_key(before)

    def event_time_timers(self) -> list[tuple[int, object]]:
        """(time, key) of each event-time timer that has not fired, in order of time."""
        keyed = self._keyed()
        keyed.flush()
        return keyed.timers.event.pending()

    def processing_time_timers(self) -> list[tuple[int, object]]:
        """(time, key) of each processing-time timer that has not fired, in order of time."""
        keyed = self._keyed()
        keyed.flush()
        return keyed.timers.processing.pending()

    def _keyed(self) -> KeyedState:
        keyed: KeyedState | None = getattr(self.operator, "keyed_state", None)
        if keyed is None:
            message = f"{_NAME}: '{self.context.name}' has no keyed state; is there a key_by()?"
            raise ProgramError(message)
        return keyed


def _graph_of(
    build: Callable[..., Any],
    input_type: TypeInformation | None,
    side_outputs: Sequence[OutputTag],
    configuration: Configuration | None,
) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    inputs = [
        env.from_source(ScriptedSource([], input_type), _untimed(), f"input {number}")
        for number, _ in enumerate(inspect.signature(build).parameters)
    ]
    result = build(*inputs)
    for tag in side_outputs:
        result.get_side_output(tag).print()
    result.print()
    return env.get_job_graph(_NAME)


def _untimed() -> Any:
    from millstream.functions.watermark_strategy import WatermarkStrategy

    return WatermarkStrategy.no_watermarks()


def _only_operator(graph: JobGraph) -> StreamNode:
    found = [node for node in graph.nodes.values() if node.kind == "operator"]
    if len(found) != 1:
        names = ", ".join(f"'{node.name}' ({node.location})" for node in found) or "none"
        message = (
            f"{_NAME} runs one operator, and this piece of a program has {len(found)}: {names}."
            " Test them one by one, or all together by run_and_collect()"
        )
        raise ProgramError(message)
    return found[0]
