"""Tables, streams and values that a query reads, and full changelogs of those that give upserts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from millstream.configuration.options import CDC_EVENTS_DUPLICATE
from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.connectors.formats.row_format import row_of_columns
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split
from millstream.errors import ValidationError
from millstream.expressions.evaluator import is_deterministic as is_constant
from millstream.expressions.nodes import Call, Literal, walk
from millstream.runtime.operators.table.calc import ConformFactory
from millstream.runtime.operators.table.deduplicate import ChangelogNormalizeFactory
from millstream.runtime.operators.table.sink_materializer import DropUpdateBeforeFactory
from millstream.sql.catalog.connectors import INSERT_ONLY, METADATA_PREFIX
from millstream.sql.planner import physical as pp
from millstream.sql.planner.calcs import (
    Calc,
    conjunction,
    conjuncts,
    exchange,
)
from millstream.sql.planner.formatting import columns_text, expression_text
from millstream.sql.stream_types import stream_type
from millstream.types.values import column_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.contracts.source import KnownSplits
    from millstream.expressions.nodes import Expression
    from millstream.graph.transformation import Transformation
    from millstream.sql.catalog.connectors import TableSource
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.sql.catalog.schema import Column as TableColumn
    from millstream.sql.planner.calcs import Converts
    from millstream.sql.planner.logical import ScanNode, StreamScanNode
    from millstream.types.logical_types import RowType
    from millstream.types.types import TypeInformation


class Scan(pp.PhysicalNode):
    """Reads changes from outside of the query."""

    @property
    def given(self) -> frozenset[str]:
        """The kinds of changes that it gives, updates with or without the row before."""
        raise NotImplementedError

    def change_types(self) -> frozenset[str]:
        return frozenset("U" if each in {"UB", "UA"} else each for each in self.given)

    def planned(self, planner: pp.PlansChanges, required: str) -> pp.PhysicalNode | None:
        del planner
        made = replace(self, changes=self.given)
        if required == pp.AFTER and "UB" in self.given:
            left = self.given - {"UB"}
            return DropUpdateBefore(row=self.row, inputs=(made,), changes=left)
        return made


class TableSourceScan(Scan):
    """Reads a table."""

    identifier: ObjectIdentifier
    table: CatalogTable
    source: TableSource
    #: What is true of the partitions that are read, over the columns; None: all are.
    partitions: pp.Condition = None
    #: What a catalog was told, for estimates of costs alone; None: nothing, or it was not asked.
    known_rows: int | None = None

    is_shared = True
    state: ClassVar[pp.Parts] = {"table": "{identifier}", "partitions": "*partitions"}

    def details(self) -> str:
        path = ", ".join(self.identifier.parts)
        if self.partitions is not None:
            path += f", partitions=[{expression_text(self.partitions)}]"
        read = self.read_columns
        if len(read) < len(self.table.schema.read):
            columns = ", ".join(each.name for each in read if not each.is_metadata())
            path += f", project=[{columns}]"
            if self.source.metadata():
                keys = ", ".join(each.key for each in read if each.is_metadata())
                path += f", metadata=[{keys}]"
        return f"table=[[{path}]], fields=[{self.fields_text()}]"

    @property
    def read_columns(self) -> list[TableColumn]:
        """The table's columns that the scan gives."""
        return [each for each in self.table.schema.read if self.row.index_of(each.name) >= 0]

    @property
    def given(self) -> frozenset[str]:
        return self.source.changes

    def narrowed(
        self, wanted: set[int], narrow: Callable[[pp.PhysicalNode], pp.Narrowed]
    ) -> pp.Narrowed:
        del narrow
        if self.changes != INSERT_ONLY:
            wanted = wanted | {self.row.index_of(each) for each in self.table.schema.key_columns}
        if not wanted:
            row = row_of_columns(self.row, ())
            wanted = {self.row.index_of(name) for name in row.names}
        kept = sorted(wanted)
        names = [self.row.names[each] for each in kept]
        source = self.source.with_columns(names) if len(kept) < len(self.row) else None
        if source is None:
            return self, list(range(len(self.row)))
        return replace(self, row=pp.some_fields(self.row, kept), source=source), kept

    def unique_keys(self) -> pp.Keys:
        key = [self.row.index_of(name) for name in self.table.schema.key_columns]
        return pp.key_of(key) if key and min(key) >= 0 else pp.NO_KEYS

    def words(self, origins: pp.Origins) -> str:
        if self.partitions is None:
            return f"{self.kind} {self.identifier}"
        # Another choice of files is another source: some would never be read.
        read = origins.text(self.partitions, origins.columns(self))
        return f"{self.kind} {self.identifier} {read}"

    def all_words(self, origins: pp.Origins) -> str:
        return f"{self.words(origins)} {sorted(self.table.options.items())}"

    def operator(self, lowering: pp.Lowers) -> Transformation:
        name = f"Source: {self.identifier.object_name}"
        made = lowering.source(self, name, self.source.create())
        columns = tuple(
            METADATA_PREFIX + column.key if column.is_metadata() else column.name
            for column in self.read_columns
        )
        table = f"table '{self.identifier.as_summary_string()}'"
        return lowering.one(
            "SourceConversion", ConformFactory(columns, table=table), made, self.row
        )


class DataStreamScan(Scan):
    """Reads a stream of the program."""

    transformation: Transformation
    name: str
    changelog: frozenset[str]
    key: tuple[int, ...] = ()
    rowtime: int | None = None

    is_written = False
    place = "{name}"

    def details(self) -> str:
        return f"table=[[{self.name}]], fields=[{self.fields_text()}]"

    @property
    def given(self) -> frozenset[str]:
        return self.changelog

    def unique_keys(self) -> pp.Keys:
        return pp.key_of(self.key) if self.key else pp.NO_KEYS

    def operator(self, lowering: pp.Lowers) -> Transformation:
        del lowering
        return self.transformation


class ValuesScan(pp.PhysicalNode):
    """Gives rows of the statement."""

    rows: tuple[tuple[object, ...], ...]
    kind: ClassVar[str] = "Values"

    def details(self) -> str:
        shown = []
        for row in self.rows:
            values = zip(row, self.row.children, strict=True)
            texts = (expression_text(Literal(value, kind)) for value, kind in values)
            shown.append("{ " + ", ".join(texts) + " }")
        return f"tuples=[[{', '.join(shown)}]]"

    def words(self, origins: pp.Origins) -> str:
        return f"{self.kind} {', '.join(origins.columns(self))}"

    def all_words(self, origins: pp.Origins) -> str:
        return f"{self.words(origins)} {self.details()}"

    def made_of(self, origins: pp.Origins) -> list[str]:
        del origins
        return [f"{at} {pp.type_text(each.type)}" for at, each in enumerate(self.row.fields)]

    def operator(self, lowering: pp.Lowers) -> Transformation:
        return lowering.source(None, "Source: Values", ValuesSource(self.row, self.rows))


class ValuesSource(Source):
    """The rows of VALUES.

    Args:
        row: their type.
        rows: tuples of values.
    """

    def __init__(self, row: RowType, rows: Sequence[tuple[object, ...]]) -> None:
        self.row = row
        self.rows = list(rows)

    @property
    def boundedness(self) -> Boundedness:
        """They end."""
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return stream_type(self.row)

    def discover(self, known: KnownSplits) -> list[Split]:
        """One split."""
        return [] if "values" in known else [Split("values")]

    def end_offset(self, split: Split) -> int:
        """How many rows there are."""
        del split
        return len(self.rows)

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        del split
        for at in range(start, min(stop, len(self.rows)), BATCH_SIZE):
            rows = self.rows[at : min(at + BATCH_SIZE, stop)]
            columns = [
                column_of([row[i] for row in rows], field.type)
                for i, field in enumerate(self.row.fields)
            ]
            schema = self.row.to_arrow_schema()
            yield SourceBatch(arrow=pa.RecordBatch.from_arrays(columns, schema=schema))


class DropUpdateBefore(pp.PhysicalNode):
    """Drops -U."""

    passes_keys = True
    passes_unsure = True

    def operator(self, lowering: pp.Lowers) -> Transformation:
        below = lowering.stream(self.input)
        return lowering.one(self.kind, DropUpdateBeforeFactory(), below, self.row)


class ChangelogNormalize(pp.PhysicalNode):
    """Makes a full changelog of upserts."""

    keys: pp.Columns

    is_shared = True
    is_pruned = True
    place = "[{keys}] [{inputs}]"
    state: ClassVar[pp.Parts] = {"keys": "*keys", "columns": "*inputs"}

    def details(self) -> str:
        return f"key=[{columns_text(self.row, self.keys)}]"

    def unique_keys(self) -> pp.Keys:
        return pp.key_of(self.keys)

    def change_types(self) -> frozenset[str]:
        super().change_types()
        return pp.ALL_CHANGES

    def planned(self, planner: pp.PlansChanges, required: str) -> pp.PhysicalNode | None:
        return planner.made(self, [planner.visit(self.input, pp.AFTER)], required)

    def operator(self, lowering: pp.Lowers) -> Transformation:
        factory = lowering.factory(ChangelogNormalizeFactory, self)
        return lowering.stateful(self, factory, single=False)


# -- rules ---------------------------------------------------------------------------------------


def table_scan(converter: Converts, node: ScanNode) -> pp.PhysicalNode:
    """Read a table."""
    scan = TableSourceScan(
        row=node.row, identifier=node.identifier, table=node.table, source=node.source
    )
    scan.changes = node.source.changes
    key = node.table.schema.key_columns
    keys = tuple(node.row.index_of(name) for name in key) if key else None
    return _normalized(converter, scan, keys, f"Table '{node.identifier.as_summary_string()}'")


def stream_scan(converter: Converts, node: StreamScanNode) -> pp.PhysicalNode:
    """Read a stream of the program."""
    scan = DataStreamScan(
        row=node.row,
        transformation=node.transformation,
        name=node.name,
        changelog=node.changelog,
        key=node.key,
        rowtime=node.rowtime,
    )
    scan.changes = node.changelog
    return _normalized(converter, scan, node.key or None, f"Stream '{node.name}'")


def _normalized(
    converter: Converts, scan: pp.PhysicalNode, keys: tuple[int, ...] | None, source: str
) -> pp.PhysicalNode:
    """Return what makes full changelogs, without repeated changes, of a source of changes.

    Raises:
        ValidationError: its changes need a primary key, which it lacks.
    """
    upserts = "UA" in scan.changes and "UB" not in scan.changes
    repeats = converter.changes_repeat and not converter.is_batch and scan.changes != INSERT_ONLY
    if not upserts and not repeats:
        return scan
    if keys is None:
        why = (
            "gives upserts and needs a PRIMARY KEY"
            if upserts
            else f"needs a PRIMARY KEY: '{CDC_EVENTS_DUPLICATE.key}' says that its changes may"
            " repeat, and rows are kept by it"
        )
        message = f"{source} {why}."
        raise ValidationError(message)
    return ChangelogNormalize(row=scan.row, inputs=(exchange(scan, keys),), keys=keys)


def prune_partitions(plans: list[pp.Plan]) -> list[pp.Plan]:
    """Make scans skip partitions that the filter of their only reader excludes."""
    readers: dict[int, list[pp.PhysicalNode]] = {}
    scans: dict[int, TableSourceScan] = {}
    for node in pp.nodes_of(plans):
        for below in node.inputs:
            readers.setdefault(id(below), []).append(node)
            if isinstance(below, TableSourceScan):
                scans[id(below)] = below
    for number, scan in scans.items():
        above = readers[number]
        if scan.table.partition_keys and len(above) == 1 and isinstance(above[0], Calc):
            _prune(scan, above[0])
    return plans


def _prune(scan: TableSourceScan, calc: Calc) -> None:
    keys = {scan.row.index_of(name) for name in scan.table.partition_keys}
    condition = conjunction([e for e in conjuncts(calc.condition) if _is_about(e, keys)])
    if condition is None:
        return
    pruned = scan.source.with_partitions(condition)
    if pruned is not None:
        scan.source, scan.partitions = pruned, condition


def _is_about(condition: Expression, keys: set[int]) -> bool:
    """Return whether some columns decide a condition, and a function of a user is not asked."""
    columns = pp.columns_of(condition)
    of_user = any(isinstance(e, Call) and e.definition is not None for e in walk(condition))
    return bool(columns) and columns <= keys and not of_user and is_constant(condition)
