"""An adapter that gives two inputs to an operator with one: records arrive as TaggedUnion.

Window joins get all features of windows this way, while their inputs are exchanged as they are:
typed columns, each hashed by its own key.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.contracts.batch import Batch
from millstream.contracts.operator import (
    Operator,
    refusal_of,
    sections_of,
    waits_for_watermarks,
)
from millstream.runtime.user_code import bound_method
from millstream.types.composite_types import TaggedUnion
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.contracts.metrics import MetricValue
    from millstream.contracts.operator import (
        Checkpoint,
        OperatorContext,
        OperatorFactory,
        OperatorSnapshot,
        Output,
        RestoreContext,
        StateSection,
    )


class TaggedKeySelector:
    """Takes the key of a TaggedUnion with the selector of its input."""

    def __init__(self, key_selector1: Any, key_selector2: Any) -> None:
        self.selectors: tuple[Callable[[Any], Any], Callable[[Any], Any]] = (
            bound_method(key_selector1, "get_key"),
            bound_method(key_selector2, "get_key"),
        )

    def __call__(self, tagged: Any) -> Any:
        """Return the key."""
        return self.selectors[tagged[0]](tagged[1])


class TaggedInputsOperator(Operator):
    """Tags records with the number of their input and hands everything on."""

    def __init__(self, inner: Operator) -> None:
        self.inner = inner
        self.keyed = inner.keyed
        self.counted = inner.counted  # type: ignore[misc] # of the class it stands for
        self._type = Types.PICKLED_BYTE_ARRAY()

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self.inner.setup(context, output)

    def open(self) -> None:
        self.inner.open()

    def close(self) -> None:
        self.inner.close()

    def restore(self, restored: RestoreContext) -> None:
        self.inner.restore(restored)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        tagged: list[object] = list(map(partial(TaggedUnion, input_index), batch.values))
        self.inner.process_batch(Batch(self._type, values=tagged, timestamps=batch.raw_timestamps))

    def process_watermark(self, watermark: int) -> None:
        self.inner.process_watermark(watermark)

    def process_idle(self, idle: bool) -> None:  # noqa: FBT001 - the contract's signature
        self.inner.process_idle(idle)

    def process_processing_time(self, now: int) -> None:
        self.inner.process_processing_time(now)

    def due(self) -> int | None:
        return self.inner.due()

    def write_some(self, deadline: float) -> bool:
        return self.inner.write_some(deadline)

    def current_metrics(self) -> dict[str, MetricValue]:
        return self.inner.current_metrics()

    def take_metrics(self) -> dict[str, MetricValue]:
        return self.inner.take_metrics()

    def read_gauges(self) -> None:
        self.inner.read_gauges()

    def end_input(self) -> None:
        self.inner.end_input()

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        return self.inner.snapshot(checkpoint)


@dataclass
class TaggedInputsFactory:
    """Factory of operators with two inputs out of those with one."""

    inner: OperatorFactory

    @property
    def keyed(self) -> bool:
        """Return whether the operator wants a store."""
        return self.inner.keyed

    @property
    def waits_for_watermarks(self) -> bool:
        """Return whether the inner operator does."""
        return waits_for_watermarks(self.inner)

    def state_sections(self) -> list[StateSection]:
        """Return what the inner operator keeps."""
        return sections_of(self.inner)

    def refusal(self, stored: StateSection) -> str | None:
        """Return what the inner operator says to a section of a checkpoint."""
        return refusal_of(self.inner, stored)

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return TaggedInputsOperator(self.inner.create())
