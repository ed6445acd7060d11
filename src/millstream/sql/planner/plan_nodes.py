"""The JSON format of compiled plans, with its version.

Each node has an id, its kind, the ids of its inputs, its EXPLAIN text, the uid of its operator if
it has one, and its fields.  Sources and sinks are stored as tables; their connectors create them
again.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields, replace
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import MillstreamError, ProgramError, ValidationError
from millstream.expressions.functions.definition import FunctionDefinition, FunctionKind
from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.expressions.resolution import resolve_definition
from millstream.expressions.user_functions import UserAggregate
from millstream.runtime.operators.table import match, row_patterns
from millstream.runtime.operators.table.specs import AggregateCall
from millstream.sql.catalog.identifiers import ObjectIdentifier
from millstream.sql.parser.parser import parse_type
from millstream.sql.planner import logical
from millstream.sql.planner.lookup_joins import LookupJoin
from millstream.sql.planner.physical import PhysicalNode
from millstream.sql.planner.scans import TableSourceScan
from millstream.sql.planner.sinks import SinkNode
from millstream.sql.planner.window_columns import WindowSpec
from millstream.types import logical_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Protocol

    from millstream.expressions.nodes import Expression
    from millstream.sql.catalog.connectors import TableSink, TableSource
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.types.logical_types import LogicalType

    class Tables(Protocol):
        """Writes tables, and makes sources and sinks of those that were written."""

        def write(self, identifier: ObjectIdentifier, table: CatalogTable) -> dict[str, Any]:
            """A table as JSON."""

        def read(self, identifier: ObjectIdentifier, written: Any) -> CatalogTable:
            """The table that was written."""

        def source(self, identifier: ObjectIdentifier, table: CatalogTable) -> TableSource:
            """The table as a source."""

        def sink(
            self,
            identifier: ObjectIdentifier,
            table: CatalogTable,
            overwrite: Sequence[tuple[str, object]] | None,
        ) -> TableSink:
            """The table as a sink."""


def _in(module: Any, base: type) -> list[type]:
    return [
        each for each in vars(module).values() if isinstance(each, type) and issubclass(each, base)
    ]


#: What objects may be, by name.
_OBJECTS: Final[dict[str, type]] = {
    each.__name__: each
    for each in (
        AggregateCall,
        logical.OverCall,
        logical.SortKey,
        WindowSpec,
        logical.LookupHint,
        row_patterns.RowPattern,
        row_patterns.PatternVariable,
        match.Navigation,
        match.Aggregation,
        match.MatchTime,
        InputReference,
        Literal,
        Call,
        ObjectIdentifier,
        logical_types.RowField,
        *_in(logical_types, logical_types.LogicalType),
    )
}
_ENUMS: Final[dict[str, type[Enum]]] = {
    each.__name__: each
    for each in (logical.JoinType, row_patterns.SkipTo, *_in(logical_types, Enum))
}
_PLAIN: Final = (str, bool, int)


class FunctionNames:
    """The functions of users, by the names that catalogs have for them."""

    def __init__(
        self,
        known: Callable[[], Iterable[tuple[tuple[str, ...], FunctionDefinition]]],
        find: Callable[[tuple[str, ...]], FunctionDefinition | None],
    ) -> None:
        """Take how all names with what they name are got, and how one is found."""
        self._known = known
        self._find = find

    def name_of(self, wanted: FunctionDefinition | UserAggregate) -> tuple[str, ...]:
        """The name of a function.

        Raises:
            ValidationError: no catalog has it.
        """
        for name, each in self._known():
            reference: object = each.reference
            if wanted is reference or (
                isinstance(wanted, FunctionDefinition)
                and (wanted.reference, wanted.kernel) == (each.reference, each.kernel)
            ):
                return name
        message = (
            f"Function '{wanted.name}' has no name in a catalog, so a plan cannot be compiled of "
            "it; give it one by create_temporary_function() or CREATE FUNCTION."
        )
        raise ValidationError(message)

    def definition_of(self, name: Sequence[str]) -> FunctionDefinition:
        """The function of a name.

        Raises:
            ValidationError: there is none.
        """
        found = self._find(tuple(name))
        if found is None:
            message = f"The plan calls the function '{'.'.join(name)}', which is in no catalog."
            raise ValidationError(message)
        return found


def omitted(each: Field[Any], value: Any) -> bool:
    """Return whether a field is as it is when nothing is said."""
    default = each.default if each.default_factory is MISSING else each.default_factory()
    return type(default) is type(value) and bool(default == value)


class PlanValues:
    """Writes and reads values of plans."""

    def __init__(self, functions: FunctionNames) -> None:
        """Take how functions of users are called."""
        self._functions = functions
        #: ``id`` of a user's aggregate that was read -> what it is.
        self._aggregates: dict[int, FunctionDefinition] = {}

    # -- writing ---------------------------------------------------------------------------------

    def write(self, value: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - a table
        """A value as what JSON has.

        Raises:
            ValidationError: it is of the program alone, such as a function without a name.
        """
        if value is None or type(value) in _PLAIN:
            return value
        if isinstance(value, float):
            return {"double": value.hex()}
        if isinstance(value, tuple | list):
            return [self.write(each) for each in value]
        if isinstance(value, Decimal):
            return {"decimal": str(value)}
        if isinstance(value, bytes):
            return {"bytes": value.hex()}
        if isinstance(value, frozenset):
            return {"set": sorted(map(self.write, value), key=json.dumps)}
        if isinstance(value, dict):
            return {"map": [[self.write(key), self.write(each)] for key, each in value.items()]}
        if isinstance(value, Enum):
            return {"enum": type(value).__name__, "name": value.name}
        if isinstance(value, logical_types.LogicalType):
            text = _text_of(value)
            if text is not None:
                return {"logicalType": text}
        if isinstance(value, FunctionDefinition):
            return {"userFunction": list(self._functions.name_of(value)), "kind": value.kind.name}
        if isinstance(value, UserAggregate):
            return {"userAggregate": list(self._functions.name_of(value))}
        if type(value).__name__ not in _OBJECTS:
            message = (
                f"A plan cannot be compiled with a value of {type(value).__name__}: {value!r}."
            )
            raise ValidationError(message)
        return {"object": type(value).__name__, **self._fields(value)}

    def _fields(self, value: Any) -> dict[str, Any]:
        if isinstance(value, logical_types.LogicalType):
            return {name: self.write(each) for name, each in value.arguments().items()}
        return {
            each.name: self.write(getattr(value, each.name))
            for each in fields(value)
            if not omitted(each, getattr(value, each.name))
        }

    # -- reading ---------------------------------------------------------------------------------

    def read(self, value: Any) -> Any:  # noqa: C901, PLR0911 - a table
        """The value that a text says.

        Raises:
            KeyError, TypeError, ValueError: it says none.
            ValidationError: a function of a user is not there.
        """
        if isinstance(value, list):
            return tuple(self.read(each) for each in value)
        if not isinstance(value, dict):
            return value
        match value:
            case {"double": str(text)}:
                return float.fromhex(text)
            case {"decimal": str(text)}:
                return Decimal(text)
            case {"bytes": str(text)}:
                return bytes.fromhex(text)
            case {"set": list(values)}:
                return frozenset(self.read(each) for each in values)
            case {"map": list(pairs)}:
                return {self.read(key): self.read(each) for key, each in pairs}
            case {"enum": str(name), "name": str(member)}:
                return _ENUMS[name][member]
            case {"logicalType": str(text)}:
                return parse_type(text)
            case {"userFunction": list(name), "kind": str(kind)}:
                definition = self._functions.definition_of(name)
                self._require(definition, name, is_aggregate=False)
                return replace(definition, kind=FunctionKind[kind])
            case {"userAggregate": list(name)}:
                definition = self._functions.definition_of(name)
                self._require(definition, name, is_aggregate=True)
                self._aggregates[id(definition.reference)] = definition
                return definition.reference
            case {"object": str(name)}:
                given: dict[str, Any] = {
                    str(key): self.read(each) for key, each in value.items() if key != "object"
                }
                return self._fitting(_OBJECTS[name](**given))
        message = f"not part of a plan: {json.dumps(value)[:200]}"
        raise ValueError(message)

    @staticmethod
    def _require(
        definition: FunctionDefinition, name: Sequence[str], *, is_aggregate: bool
    ) -> None:
        if (definition.kind is FunctionKind.AGGREGATE) != is_aggregate:
            what = "an aggregate function" if is_aggregate else "no aggregate function"
            message = (
                f"The function '{'.'.join(name)}' was {what} when the plan was compiled, and is "
                f"{definition.kind.value} now."
            )
            raise ValidationError(message)

    def _fitting(self, made: Any) -> Any:
        """Return what was read, if functions of users in it still take and give what they did.

        Raises:
            ValidationError: one does not.
        """
        if isinstance(made, Call) and made.definition is not None:
            self._compare(made.definition, made.arguments, made.type)
        elif isinstance(made, AggregateCall) and made.user is not None:
            # Arguments are columns below, which were cast to what it took.
            self._compare(self._aggregates[id(made.user)], None, made.type)
        return made

    @staticmethod
    def _compare(
        definition: FunctionDefinition, arguments: Sequence[Expression] | None, kind: LogicalType
    ) -> None:
        now: LogicalType | None
        try:
            if arguments is None:
                now = definition.signatures[0].result_type([], [])
            else:
                call = resolve_definition(definition, arguments, user=True)
                now = call.type if call.arguments == tuple(arguments) else None
        except ProgramError:
            now = None
        if now is None or now.with_nullability(nullable=True) != kind.with_nullability(
            nullable=True
        ):
            was = kind.as_summary_string()
            is_now = "takes other arguments" if now is None else f"gives {now.as_summary_string()}"
            message = (
                f"Function '{definition.name}' gave {was} when the plan was compiled, and now "
                f"{is_now}; compile the plan again."
            )
            raise ValidationError(message)


def _text_of(kind: LogicalType) -> str | None:
    """A type as SQL, where that says all of it."""
    text = kind.as_serializable_string()
    try:
        return text if parse_type(text) == kind else None
    except MillstreamError:
        return None


#: Fields that are made anew, or are written otherwise.
_NOT_WRITTEN: Final = frozenset(
    {"inputs", "kinds", "_shown", "source", "sink", "lookup", "table", "known_rows"}
)


def written_nodes(
    sinks: Sequence[SinkNode],
    values: PlanValues,
    tables: Tables,
    uids: Mapping[int, Mapping[str, str]],
) -> list[dict[str, Any]]:
    """The nodes of a plan, inputs first.

    Args:
        sinks: the ends of the plan.
        values: writes what is in nodes.
        tables: writes tables.
        uids: of the operators of nodes, by ``id`` and by which operator of the node it is.

    Raises:
        ValidationError: the plan reads something that is of the program alone.
    """
    numbers: dict[int, int] = {}
    found: list[dict[str, Any]] = []

    def write(node: PhysicalNode) -> int:
        if id(node) in numbers:
            return numbers[id(node)]
        below = [write(each) for each in node.inputs]
        if not node.is_written:
            message = (
                f"{node.kind}({node.details()}) is of the program and cannot be in a compiled "
                "plan; plans are compiled of tables of connectors and VALUES."
            )
            raise ValidationError(message)
        number = numbers[id(node)] = len(numbers) + 1
        shown = f"{node.shown_kind}({node.details()})"
        made = {"id": number, "type": type(node).__name__, "inputs": below, "description": shown}
        if uids.get(id(node)):
            made["uids"] = dict(uids[id(node)])
        found.append({**made, **_fields(node, values, tables)})
        return number

    for sink in sinks:
        write(sink)
    return found


def _fields(node: Any, values: PlanValues, tables: Tables) -> dict[str, Any]:
    made = {
        each.name: values.write(getattr(node, each.name))
        for each in fields(node)
        if each.name not in _NOT_WRITTEN and not omitted(each, getattr(node, each.name))
    }
    table = getattr(node, "table", None)
    if table is not None:
        made["table"] = tables.write(node.identifier, table)
    return made


def read_nodes(
    written: Sequence[Mapping[str, Any]], values: PlanValues, tables: Tables
) -> tuple[list[SinkNode], dict[int, dict[str, str]]]:
    """The ends of a plan, and the uids of its operators, by ``id`` of their node.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it says no plan.
        ValidationError: a table or a function is not there, or not as it was.
    """
    nodes: dict[int, PhysicalNode] = {}
    uids: dict[int, dict[str, str]] = {}
    for each in written:
        kind = PhysicalNode.types[each["type"]]
        names = {field.name for field in fields(kind)} - _NOT_WRITTEN
        given = {name: values.read(each[name]) for name in names if name in each}
        given["inputs"] = tuple(nodes[number] for number in each["inputs"])
        given |= _tables(kind, each, given, tables)
        unknown = each.keys() - names - {"id", "type", "inputs", "description", "uids", "table"}
        if unknown:
            message = f"node {each['id']} has {min(unknown)!r}, which no {each['type']} has"
            raise ValueError(message)
        made = nodes[each["id"]] = kind(**given)
        uids[id(made)] = {str(name): str(uid) for name, uid in each.get("uids", {}).items()}
    return [each for each in nodes.values() if isinstance(each, SinkNode)], uids


def _tables(
    kind: type[PhysicalNode], written: Mapping[str, Any], given: dict[str, Any], tables: Tables
) -> dict[str, Any]:
    """The fields of a node that its connector makes."""
    if kind not in {TableSourceScan, SinkNode, LookupJoin}:
        return {}
    identifier = given["identifier"]
    table = tables.read(identifier, written["table"])
    if kind is SinkNode:
        return {"table": table, "sink": tables.sink(identifier, table, given.get("overwrite"))}
    source = tables.source(identifier, table)
    if kind is TableSourceScan:
        if len(given["row"]) < len(table.schema.read):
            source = source.with_columns(given["row"].names) or source
        partitions = given.get("partitions")
        pruned = None if partitions is None else source.with_partitions(partitions)
        return {"table": table, "source": pruned or source}
    lookup = source.lookup(given["names"])
    if lookup is None:
        message = f"Table '{identifier.as_summary_string()}' cannot be looked up any more."
        raise ValidationError(message)
    return {"table": table, "lookup": lookup.with_columns(given["table_row"].names)}
