"""Sinks: what they take, and rows that are kept by their key where it is not the query's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.contracts.source import Boundedness
from millstream.errors import ValidationError
from millstream.graph.transformation import SourceTransformation
from millstream.runtime.operators.table.sink_materializer import (
    SinkConflictsFactory,
    SinkMaterializerFactory,
    WatermarkTimesFactory,
)
from millstream.sql.planner import physical as pp
from millstream.sql.planner.scans import TableSourceScan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.graph.transformation import Transformation
    from millstream.sql.catalog.connectors import TableSink
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.catalog.objects import CatalogTable


class SinkNode(pp.PhysicalNode):
    """Writes."""

    #: ``default_catalog.default_database.t``, or what takes the rows.
    name: str
    #: None: a result for the program.
    sink: TableSink | None
    #: The table; None: what takes the rows is none.
    identifier: ObjectIdentifier | None = None
    table: CatalogTable | None = None
    #: The partition that is replaced, as far as the statement says it; None: rows are added.
    overwrite: tuple[tuple[str, object], ...] | None = None
    #: Positions of the primary key.
    key: tuple[int, ...] = ()
    materialize: bool = False
    #: The upsert key of the input, for the materializer.
    upsert_key: tuple[int, ...] | None = None
    #: ``ON CONFLICT DO``: ERROR, NOTHING or DEDUPLICATE; None: the statement has no such clause.
    conflict: str | None = None

    kind: ClassVar[str] = "Sink"
    place = "{name}"
    state: ClassVar[pp.Parts] = {"table": "{name}"}

    def details(self) -> str:
        extra = ", upsertMaterialize=[true]" if self.materialize else ""
        extra += "" if self.conflict is None else f", conflictStrategy=[{self.conflict}]"
        extra += "" if self.overwrite is None else ", overwrite=[true]"
        return f"table=[{self.name}], fields=[{self.fields_text()}]{extra}"

    @property
    def checks_conflicts(self) -> bool:
        """Whether rows with its key by several keys of the query are refused, or passed over."""
        return self.conflict in {"ERROR", "NOTHING"}

    def kept_by(self, side: int) -> Iterable[int]:
        if not self.materialize:
            return ()
        every = (pp.ROW, *range(len(self.inputs[side].row)))
        return every if self.upsert_key is None else self.upsert_key

    def materializer_words(self, origins: pp.Origins) -> str:
        """Return what the operator before it is whose key is not the query's."""
        name = "SinkConflicts" if self.checks_conflicts else "SinkMaterializer"
        columns = ", ".join(origins.columns(self.input))
        return f"{name} {self.key} {self.upsert_key} [{columns}]"

    def materializer_recorded(self, origins: pp.Origins) -> dict[str, tuple[str, ...]]:
        """Return what the state of that operator is made of."""
        names = origins.columns(self.input)
        return {"keys": tuple(names[each] for each in self.key), "columns": tuple(names)}

    def materialized(self, lowering: pp.Lowers, below: Transformation) -> Transformation:
        """The rows that it has by its own key, which is not the query's."""
        row, name = self.input.row, "SinkMaterializer"
        factory: Any = lowering.factory(SinkMaterializerFactory, self, keys=self.key)
        if self.checks_conflicts:
            below = lowering.one("WatermarkTimes", WatermarkTimesFactory(), below, row)
            fails = self.conflict == "ERROR"
            factory = SinkConflictsFactory(row, self.key, self.upsert_key, fails, self.name)
        keyed = lowering.keyed(self.key, below)
        return lowering.one(
            name, factory, keyed, row, of=self, operator=pp.MATERIALIZER, single=False
        )

    def refuse_unbounded(self, below: Transformation) -> None:
        """Refuse INSERT OVERWRITE of what never ends: what was there is replaced at the end.

        Raises:
            ValidationError: a source has no end.
        """
        seen: set[int] = set()
        left = [below]
        while left:
            each = left.pop()
            if each.id in seen:
                continue
            seen.add(each.id)
            left += each.inputs
            if isinstance(each, SourceTransformation):
                source = each.source
                if source is None or source.boundedness is not Boundedness.BOUNDED:
                    message = (
                        f"Streaming mode not support overwrite: '{each.name}', which INSERT "
                        f"OVERWRITE of '{self.name}' reads, has no end."
                    )
                    raise ValidationError(message)


@dataclass(frozen=True)
class SinkRules:
    """The options about sinks.

    Args:
        materialize: AUTO: rows are kept where the sink's key is not the query's; FORCE: for each
            sink with a key that takes updates; NONE: for none.
        require_on_conflict: whether a statement must say what happens then.
    """

    materialize: str = "AUTO"
    require_on_conflict: bool = False


def takes_updates(sink: SinkNode) -> bool:
    """Return whether a sink takes updates."""
    every = pp.given_changes(pp.ALL_CHANGES, pp.BOTH)
    return sink.sink is not None and "UA" in sink.sink.accepts(every)


def materializes(sink: SinkNode, keys: pp.Keys, rules: SinkRules) -> bool:
    """Check whether rows are kept by the key of a sink, because it is not the query's.

    Args:
        sink: with what its statement says.
        keys: of the query.
        rules: what the options say.

    Raises:
        ValidationError: ``ON CONFLICT`` is missing, or cannot be carried out.
    """
    if sink.sink is None:
        return False
    kinds = pp.kinds_of(sink.input)
    # A sink that takes what it is given is asked for what it does without -U.
    taken = sink.sink.accepts(pp.given_changes(kinds, pp.AFTER))
    is_append, is_retract = taken == pp.INSERTS, "UB" in taken
    if sink.conflict is not None:
        _check_conflict(sink, is_append=is_append, is_retract=is_retract)
    if rules.materialize == "NONE" or not sink.key or is_append or is_retract:
        return False
    if kinds == pp.INSERTS and sink.conflict == "DEDUPLICATE":
        return False  # each row replaces the one before it
    if any(key <= set(sink.key) for key in keys):
        return False
    if rules.require_on_conflict and rules.materialize == "AUTO" and sink.conflict is None:
        own = ", ".join(sink.row.names[each] for each in sink.key)
        key = pp.smallest(keys)
        given = "none" if key is None else ", ".join(sink.row.names[each] for each in key)
        message = (
            f"The query has an upsert key that differs from the primary key of the sink table "
            f"'{sink.name}'. Primary key: [{own}], upsert key: [{given}]. Rows with different "
            "upsert keys may have one primary key, and the result then depends on their order. "
            "Add what happens to them to the INSERT: ON CONFLICT DO DEDUPLICATE (the last row "
            "stays; keeps all rows in state), ON CONFLICT DO ERROR (the job fails), or ON CONFLICT "
            "DO NOTHING (the first row stays). 'table.exec.sink.require-on-conflict' = 'false' "
            "takes DEDUPLICATE without the clause."
        )
        raise ValidationError(message)
    return kinds != pp.INSERTS or sink.conflict is not None


def _check_conflict(sink: SinkNode, *, is_append: bool, is_retract: bool) -> None:
    """Check what ``ON CONFLICT`` needs.

    Raises:
        ValidationError: the sink takes no upserts, or a source has no watermark.
    """
    if is_append or is_retract:
        reason = (
            "it only accepts INSERT (append-only) changes"
            if is_append
            else "it requires UPDATE_BEFORE (retract mode)"
        )
        message = (
            "ON CONFLICT clause is only allowed for upsert sinks. The sink "
            f"'{sink.name}' is not an upsert sink because {reason}."
        )
        raise ValidationError(message)
    if sink.conflict == "DEDUPLICATE":
        return
    without = dict.fromkeys(_without_watermarks(sink.input))
    if without:
        message = (
            f"ON CONFLICT DO {sink.conflict} requires all source tables to define watermarks, but "
            f"the following source(s) do not: {', '.join(without)}. Add a WATERMARK declaration to "
            "these tables."
        )
        raise ValidationError(message)


def _without_watermarks(node: pp.PhysicalNode) -> list[str]:
    """The tables below a node that have no watermark."""
    if isinstance(node, TableSourceScan):
        has_one = node.table.schema.watermark is not None
        return [] if has_one else [node.identifier.as_summary_string()]
    return [name for each in node.inputs for name in _without_watermarks(each)]
