"""The functions users write for a stream and a broadcast one, with PyFlink's names.

What it is: base classes for ``DataStream.connect(BroadcastStream)``.  Records of the broadcast
stream come to every subtask, where they change broadcast state; records of the other stream read
it.

What it is not: what calls them, which is ``runtime/operators/broadcast_process.py``.

Read next: ``functions/co_functions.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from millstream.functions.functions import ElementContext, Function, TimeDomain, TimerService

if TYPE_CHECKING:
    from millstream.functions.descriptors import MapStateDescriptor
    from millstream.functions.handles import BroadcastState, ReadOnlyBroadcastState

__all__ = [
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "KeyedBroadcastProcessFunction",
]


class BaseBroadcastProcessFunction(Function):
    """What both have in common: the contexts."""

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
        """What a record of the broadcast stream comes with."""

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
        """What a record of the other stream comes with."""

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
        """What a record of the broadcast stream comes with."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """What a record of the other stream comes with."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ReadOnlyContext) -> Any:
        """Yield what a record gives (``tag, value`` for a side output), or return None."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: Context) -> Any:
        """The same for a record of the broadcast stream; every subtask is given it."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction):
    """For a keyed stream: its records have keyed state and timers, those broadcast have not.

    Flink's ``apply_to_keyed_state`` is in no PyFlink, and not here.
    """

    class Context(BaseBroadcastProcessFunction.Context):
        """What a record of the broadcast stream comes with."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """What a record of the keyed stream comes with."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Time, and timers of the key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the record."""

    class OnTimerContext(ReadOnlyContext):
        """What a timer comes with."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Whether it is a timer of event time or of processing time."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ReadOnlyContext) -> Any:
        """Yield what a record gives (``tag, value`` for a side output), or return None."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: Context) -> Any:
        """The same for a record of the broadcast stream; every subtask is given it."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Any:
        """Yield what a timer gives, or return None."""
