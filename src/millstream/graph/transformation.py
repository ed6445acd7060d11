"""Transformations: the program as the user wrote it, a graph of objects that point to their inputs.

Some become operators (``Source``, ``OneInput``, ``TwoInput``, ``Sink``), others only describe how
records travel between operators (``Union``, ``Partition``, ``SideOutput``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.contracts.operator import OperatorFactory
    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source
    from millstream.functions.watermark_strategy import WatermarkStrategy
    from millstream.graph.model import Partitioning
    from millstream.types.types import TypeInformation


#: The side output of every source: what it could not parse, if its options say so.
DEAD_LETTER_TAG = "dead-letter"


class MadeUid(str):
    """A uid that is made of what an operator does; others of its job may do the same.

    Where several have it they are distinguished by the first of ``tellers`` in which they differ.
    """

    __slots__ = ("tellers",)
    tellers: tuple[str, ...]

    def __new__(cls, uid: str, tellers: tuple[str, ...]) -> Self:
        """Take the uid, and what tells it from others."""
        made = super().__new__(cls, uid)
        made.tellers = tellers
        return made

    def told(self, count: int) -> tuple[str, ...]:
        """The uid with the first tellers."""
        return (str(self), *self.tellers[:count])


@dataclass(eq=False, kw_only=True)
class Transformation:
    """One call of the program.  Compared by identity; inputs always have a smaller ``id``."""

    #: Counted by the environment, in order of the calls.
    id: int
    #: "job.py:12".
    location: str
    output_type: TypeInformation

    @property
    def inputs(self) -> list[Transformation]:
        """The transformations it reads, in order."""
        return []


@dataclass(eq=False, kw_only=True)
class PhysicalTransformation(Transformation):
    """A transformation that becomes an operator.

    ``parallelism`` and ``max_parallelism`` are None where the program leaves them to the
    configuration.
    """

    name: str
    #: What ``name`` was before the user changed it: renaming must not change the generated uid.
    kind_name: str
    uid: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    description: str | None = None
    #: The operator only works with parallelism 1.
    non_parallel: bool = False
    #: Types the program has told for side outputs, by tag.
    side_types: dict[str, TypeInformation] = field(default_factory=dict)
    #: What it computes, part by part, for those who ask what has changed.
    details: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(eq=False, kw_only=True)
class SourceTransformation(PhysicalTransformation):
    """Reads a source (``source``) or a Spark streaming DataFrame (``spark_index``)."""

    source: Source | None = None
    spark_index: int | None = None
    watermark_strategy: WatermarkStrategy | None = None


@dataclass(eq=False, kw_only=True)
class OperatorTransformation(PhysicalTransformation):
    """An operator that is neither a source nor a sink."""

    factory: OperatorFactory
    #: The user code in ``factory``, by what to call it in messages: checked before shipping.
    user_code: dict[str, object] = field(default_factory=dict)
    needs_processing_time: bool = False


@dataclass(eq=False, kw_only=True)
class OneInputTransformation(OperatorTransformation):
    """An operator with one input (which may be a union)."""

    input: Transformation
    #: Makes the operator that pre-aggregates before a HASH exchange, where there is one.
    combiner: OperatorFactory | None = None

    @property
    def inputs(self) -> list[Transformation]:
        return [self.input]


@dataclass(eq=False, kw_only=True)
class TwoInputTransformation(OperatorTransformation):
    """An operator that tells its two inputs apart (each of which may be a union).

    They may be the same transformation: then every record comes in twice.
    """

    input1: Transformation
    input2: Transformation

    @property
    def inputs(self) -> list[Transformation]:
        """The two inputs; the place in this list is ``StreamEdge.input_index``."""
        return [self.input1, self.input2]


@dataclass(eq=False, kw_only=True)
class SinkTransformation(PhysicalTransformation):
    """The end of a stream."""

    input: Transformation
    sink: Sink
    factory: OperatorFactory
    #: Where the program does not say, it is as parallel as what it reads, not as the job: its
    #: output is looked at, and keeps the order of the stream.
    follows_input: bool = False
    #: Whether it is told the time though no record comes.
    needs_processing_time: bool = False

    @property
    def inputs(self) -> list[Transformation]:
        return [self.input]


@dataclass(eq=False, kw_only=True)
class UnionTransformation(Transformation):
    """Several streams of one type read as one; becomes several input edges."""

    members: list[Transformation]

    @property
    def inputs(self) -> list[Transformation]:
        return self.members


@dataclass(eq=False, kw_only=True)
class PartitionTransformation(Transformation):
    """Says how records reach the next operator; becomes a property of the edge."""

    input: Transformation
    partitioning: Partitioning
    key_selector: Callable[[object], object] | None = None
    partitioner: Callable[[object, int], int] | None = None

    @property
    def inputs(self) -> list[Transformation]:
        return [self.input]


@dataclass(eq=False, kw_only=True)
class SideOutputTransformation(Transformation):
    """Reads a side output of an operator; becomes a property of the edge."""

    input: Transformation
    tag: str

    @property
    def inputs(self) -> list[Transformation]:
        """The operator with the side output."""
        return [self.input]
