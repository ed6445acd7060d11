"""What triggers and evictors are given: time, timers and state of the current key and window.

What it is: one object per operator, set to a key and window before user code is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.functions.triggers import Evictor, Trigger
from millstream.state.namespaced_state import NamespacedStates
from millstream.types.time import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.functions.descriptors import StateDescriptor
    from millstream.functions.handles import State
    from millstream.functions.metric_group import MetricGroup
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState


#: What the namespace of a window's timers begins with.
WINDOW_TIMERS: Final = b"w"


class WindowTriggerContext(Trigger.OnMergeContext, Evictor.EvictorContext):
    """Implements PyFlink's TriggerContext, OnMergeContext and Flink's EvictorContext."""

    def __init__(self, keyed: KeyedState, metrics: MetricGroup) -> None:
        """Take the operator's state and metrics."""
        self._keyed = keyed
        self._timers = keyed.timers
        self._metrics = metrics
        self.states = NamespacedStates(keyed, "windows.trigger")
        self.watermark = MIN_TIMESTAMP
        self.processing_time = 0
        #: Set while the end of the keys (BATCH mode) fires all timers: new ones are ignored.
        self.is_ending = False
        #: The namespaces of the windows that became the current one, in ``on_merge``.
        self.merged: Sequence[bytes] = ()
        #: (key, window) whose timers the operator need not register again.
        self.registered: set[tuple[CacheKey, bytes]] = set()
        self._namespace = b""

    def set_window(self, key: CacheKey, namespace: bytes) -> None:
        """Let the context speak of a window of the current key."""
        self.states.slot = (key, namespace)
        self._namespace = WINDOW_TIMERS + namespace

    def get_current_processing_time(self) -> int:
        return self.processing_time

    def get_metric_group(self) -> MetricGroup:
        return self._metrics

    def get_current_watermark(self) -> int:
        return self.watermark

    def register_processing_time_timer(self, time: int) -> None:
        if not self.is_ending:
            self._timers.register_processing_time(
                self._keyed.current_key, self._namespace, _within_long(time)
            )

    def register_event_time_timer(self, time: int) -> None:
        if not self.is_ending:
            self._timers.register_event_time(
                self._keyed.current_key, self._namespace, _within_long(time)
            )

    def delete_processing_time_timer(self, time: int) -> None:
        self.registered.discard(self.states.slot)
        self._timers.delete_processing_time(
            self._keyed.current_key, self._namespace, _within_long(time)
        )

    def delete_event_time_timer(self, time: int) -> None:
        self.registered.discard(self.states.slot)
        self._timers.delete_event_time(self._keyed.current_key, self._namespace, _within_long(time))

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> State:
        return self.states.handle(state_descriptor)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Merge the state of the merged windows into the current one."""
        self.states.merge(state_descriptor, self.merged)


def _within_long(time: int) -> int:
    return min(max(time, MIN_TIMESTAMP), MAX_TIMESTAMP)
