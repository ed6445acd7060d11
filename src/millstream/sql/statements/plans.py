"""COMPILE PLAN and EXECUTE PLAN: plans that are stored, and executed unchanged.

A compiled plan holds all nodes, the uids of operators and the options that operators are created
with, so that a later release, or another session, creates the same operators and restores their
state; statements are neither parsed nor planned again.

A table of a plan is resolved as follows:

1. The session's catalogs have it: its columns and key must be the plan's; options are the plan's,
   as in Flink.
2. They do not: the plan's definition is used.
3. Secret options are not stored in the plan: they come from the catalog, which must have the table.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream import __version__
from millstream.configuration.configuration import Configuration
from millstream.configuration.options import FORCE_RECOMPILE, LOCAL_TIME_ZONE
from millstream.configuration.redaction import is_secret
from millstream.errors import MillstreamError, UnsupportedSqlError, ValidationError
from millstream.graph.model import caller_location
from millstream.sql.binder.calls import user_definition
from millstream.sql.catalog import connectors
from millstream.sql.catalog.file_catalog import read_object, text_of
from millstream.sql.catalog.objects import CatalogTable
from millstream.sql.lowering.lowering import Lowering
from millstream.sql.lowering.operator_uids import Places
from millstream.sql.parser import nodes
from millstream.sql.parser import statement_nodes as syntax
from millstream.sql.planner.explain import explain_physical
from millstream.sql.planner.physical import LoweringOptions
from millstream.sql.planner.plan_nodes import FunctionNames, PlanValues, read_nodes, written_nodes
from millstream.sql.statements.session import OK, refuse_options
from millstream.sql.statements.show import set_known_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.graph.transformation import Transformation
    from millstream.sql.catalog.connectors import TableSink, TableSource
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.planner.sinks import SinkNode
    from millstream.sql.statements.session import JobResult, RowsResult, Session, Target


#: Of the format; others are refused.
VERSION: Final = 1
_PARTS: Final = frozenset({"formatVersion", "millstreamVersion", "options", "nodes", "checksum"})
#: Options that are the session's when a plan is run.
_OF_SESSION: Final = frozenset({"job_parameters", "query_start"})


@dataclass(frozen=True)
class Plan:
    """A plan that was compiled."""

    text: str
    #: The release that made it.
    release: str
    sinks: tuple[SinkNode, ...] = field(repr=False)
    uids: dict[int, dict[str, str]] = field(repr=False)
    options: LoweringOptions = field(repr=False)


# -- tables and functions ------------------------------------------------------------------------


#: Names of the options that a plan leaves out, for they are secret.
_HIDDEN: Final = "options_of_catalog"


class _Tables:
    """Tables of a session, in plans."""

    def __init__(self, session: Session, time_zone: str | None = None) -> None:
        self._session = session
        #: Of the session, but in the time zone of the plan: connectors go by it, too.
        self._configuration = session.configuration
        if time_zone is not None:
            self._configuration = Configuration(session.configuration)
            self._configuration.set(LOCAL_TIME_ZONE, time_zone)

    def write(self, identifier: ObjectIdentifier, table: CatalogTable) -> dict[str, Any]:
        """A table as JSON, without its secrets."""
        hidden = sorted(key for key, value in table.options.items() if is_secret(key, value))
        shown = table.copy({key: table.options[key] for key in sorted(table.options)})
        shown = shown.copy({k: v for k, v in shown.options.items() if k not in hidden})
        made = json.loads(text_of(shown, identifier.as_summary_string()))
        return {**made, _HIDDEN: hidden} if hidden else made

    def read(self, identifier: ObjectIdentifier, written: Any) -> CatalogTable:
        """The table that a plan says."""
        content = {key: each for key, each in written.items() if key != _HIDDEN}
        table: CatalogTable = read_object(json.dumps(content), f"table {identifier} of the plan")
        found = (
            self._session.catalogs.find_table(identifier.parts) if _is_named(identifier) else None
        )
        hidden = written.get(_HIDDEN, [])
        shown = identifier.as_summary_string()
        if found is None:
            if hidden:
                message = (
                    f"Option '{hidden[0]}' of table '{shown}' is a secret and not in the plan; "
                    "create the table before the plan is run."
                )
                raise ValidationError(message)
            return table
        if not isinstance(found.table, CatalogTable) or _shape(found.table) != _shape(table):
            message = (
                f"The schema of table '{shown}' from the persisted plan does not match the schema "
                f"loaded from the catalog: {_shape(table)} != {_shape(found.table)}. Make sure the "
                "table schema in the catalog is still identical."
            )
            raise ValidationError(message)
        options = found.table.options
        for key in hidden:
            if key not in options:  # it was said by OPTIONS of the statement
                message = (
                    f"Option '{key}' of table '{shown}' is a secret and not in the plan, and the "
                    "table of the catalog has none."
                )
                raise ValidationError(message)
        return table.copy({**table.options, **{key: options[key] for key in hidden}})

    def source(self, identifier: ObjectIdentifier, table: CatalogTable) -> TableSource:
        """The table as a source."""
        return connectors.table_source(identifier, table, self._configuration)

    def sink(
        self,
        identifier: ObjectIdentifier,
        table: CatalogTable,
        overwrite: Sequence[tuple[str, object]] | None,
    ) -> TableSink:
        """The table as a sink."""
        return connectors.table_sink(identifier, table, self._configuration, overwrite)


def _is_named(identifier: ObjectIdentifier) -> bool:
    return not identifier.object_name.startswith("*anonymous_")


def _shape(table: Any) -> str:
    """Return what must be the same in a plan and in a catalog."""
    schema = table.schema
    columns = [
        f"{each.name} {each.type.as_serializable_string()} {each.explain_extras() or ''}".rstrip()
        for each in schema.columns
    ]
    key = [f"PRIMARY KEY ({', '.join(schema.key_columns)})"] if schema.key_columns else []
    partitions = getattr(table, "partition_keys", ())
    by = [f"PARTITIONED BY ({', '.join(partitions)})"] if partitions else []
    return f"({', '.join([*columns, *key, *by])})"


def _values(session: Session) -> PlanValues:
    def named(function: Any) -> FunctionDefinition:
        node = nodes.identifier("function")
        return user_definition(session.context(None), node, function)

    def known() -> Iterator[tuple[tuple[str, ...], FunctionDefinition]]:
        for name, function in session.catalogs.functions():
            yield name, named(function)

    def find(name: tuple[str, ...]) -> FunctionDefinition | None:
        found = session.catalogs.find_function(name)
        return None if found is None else named(found)

    return PlanValues(FunctionNames(known, find))


# -- compiling -----------------------------------------------------------------------------------


def compiled(session: Session, targets: Sequence[Target]) -> Plan:
    """The plan of some INSERTs.

    Raises:
        ValidationError: it is made of something of the program that no text says.
    """
    if not targets:
        message = "There is nothing to compile: the statement set is empty."
        raise ValidationError(message)
    _refuse_batch(session)
    sinks = session.sink_plans(targets)
    options = session.lowering_options()
    places = Places()
    places.add(sinks)
    uids = places.uids()
    content: dict[str, Any] = {
        "formatVersion": VERSION,
        "millstreamVersion": _release(),
        "options": {k: v for k, v in asdict(options).items() if k not in _OF_SESSION},
        "nodes": written_nodes(sinks, _values(session), _Tables(session), uids),
    }
    text = json.dumps({**content, "checksum": _checksum(content)}, indent=2)
    return Plan(text + "\n", _release(), tuple(sinks), uids, options)


def _checksum(content: Mapping[str, Any]) -> str:
    """Of all that says what the job does; how the text is laid out is nothing to it."""
    said = json.dumps([content["options"], content["nodes"]], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _refuse_batch(session: Session) -> None:
    if session.is_batch:
        message = "The compiled plan feature is not supported in batch mode."
        raise ValidationError(message)


def _release() -> str:
    return __version__


def loaded(session: Session, text: str, place: str) -> Plan:
    """The plan that a text says.

    Args:
        session: whose tables and functions it is about.
        text: as ``compiled`` made it.
        place: where it was, for errors.

    Raises:
        ValidationError: it is no plan, is of another version, or does not fit the catalogs.
    """
    _refuse_batch(session)
    try:
        content = json.loads(text)
        version = content["formatVersion"]
        if version != VERSION:
            message = f"{place} is a plan of version {version}; this release reads {VERSION}."
            raise ValidationError(message)
        now = session.lowering_options()
        given = {name: getattr(now, name) for name in _OF_SESSION}
        options = LoweringOptions(**content["options"], **given)
        tables = _Tables(session, options.time_zone)
        sinks, uids = read_nodes(content["nodes"], _values(session), tables)
        release = str(content["millstreamVersion"])
        _require_whole(content, place)
    except MillstreamError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        message = f"{place} is no compiled plan: {type(error).__name__}: {error}"
        raise ValidationError(message) from error
    if not sinks:
        message = f"{place} is no compiled plan: it writes nothing."
        raise ValidationError(message)
    return Plan(text, release, tuple(sinks), uids, options)


def _require_whole(content: Mapping[str, Any], place: str) -> None:
    """Refuse what was changed by hand: a filter that is gone is not seen in what is left."""
    unknown = content.keys() - _PARTS
    if unknown:
        message = f"{place} has '{min(unknown)}', which plans of this release do not have."
        raise ValidationError(message)
    if "checksum" in content and content["checksum"] != _checksum(content):
        message = (
            f"{place} is not as it was compiled: its text was changed. Compile it again, or take "
            "its 'checksum' away to run it as it is."
        )
        raise ValidationError(message)


# -- running -------------------------------------------------------------------------------------


def ends_of(session: Session, plan: Plan) -> list[Transformation]:
    """The ends of the job of a plan."""
    refuse_options(session.configuration)
    lowering = Lowering(session.program.next_id, caller_location(), plan.options, plan.uids)
    return session.ends(plan.sinks, lowering)


def run_plan(session: Session, plan: Plan) -> JobResult:
    """Start the job of a plan."""
    return session.started(ends_of(session, plan), [each.name for each in plan.sinks])


def explained(session: Session, plan: Plan, details: Sequence[str] = ()) -> str:
    """Return what a plan is, in the words of EXPLAIN.

    Raises:
        UnsupportedSqlError: the plan does not say that detail.
    """
    for each in details:
        if each not in {"CHANGELOG_MODE", "ESTIMATED_COST"}:
            message = f"EXPLAIN {each} of a compiled plan is not in this release."
            raise UnsupportedSqlError(message)
    changes, costs = "CHANGELOG_MODE" in details, "ESTIMATED_COST" in details
    if costs:
        set_known_rows(session, plan.sinks)
    shown = explain_physical(plan.sinks, with_changes=changes, with_costs=costs)
    return f"== Optimized Execution Plan ==\n{shown}"


# -- files ---------------------------------------------------------------------------------------


def read_plan(session: Session, path: str) -> Plan:
    """The plan in a file.

    Raises:
        ValidationError: there is none.
    """
    place = _place(path)
    try:
        text = place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"Cannot read the plan file '{path}': {error}."
        raise ValidationError(message) from error
    return loaded(session, text, f"'{path}'")


def written(session: Session, plan: Callable[[], Plan], path: str, *, keep: bool) -> Plan:
    """Write a plan into a file, all of it or nothing.

    Args:
        session: whose options say whether a file may be written over.
        plan: compiles it.
        path: the file.
        keep: a plan that is there already is taken instead.

    Raises:
        ValidationError: there is a file, or it cannot be written.
    """
    place = _place(path)
    if place.exists():
        if keep:
            return read_plan(session, path)
        if not session.configuration.get(FORCE_RECOMPILE):
            message = (
                f"Cannot overwrite the plan file '{path}'. Either manually remove the file or, if "
                f"you're debugging your job, set the option '{FORCE_RECOMPILE.key}' to true."
            )
            raise ValidationError(message)
    made = plan()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_name(f".{place.name}.{os.getpid()}")
        beside.write_text(made.text, encoding="utf-8")
        beside.replace(place)
    except OSError as error:
        message = f"Cannot write the compiled plan to file '{path}': {error}."
        raise ValidationError(message) from error
    return made


def _place(path: str) -> Path:
    if "://" in path and not path.startswith("file://"):
        message = f"Plan file '{path}': plans are in files of this machine in this release."
        raise ValidationError(message)
    return Path(path.removeprefix("file://"))


# -- statements ----------------------------------------------------------------------------------


def _of_statement(session: Session, statement: Any, text: str | None) -> Callable[[], Plan]:
    parts = statement.statements if isinstance(statement, syntax.StatementSet) else (statement,)
    return lambda: compiled(session, [session.target(each, text) for each in parts])


def _compile(session: Session, node: syntax.CompilePlan, text: str | None) -> RowsResult:
    made = _of_statement(session, node.statement, text)
    written(session, made, node.path, keep=node.if_not_exists)
    return OK


def _execute(session: Session, node: syntax.ExecutePlan, text: str | None) -> JobResult:
    del text
    return run_plan(session, read_plan(session, node.path))


def _both(session: Session, node: syntax.CompileAndExecutePlan, text: str | None) -> JobResult:
    plan = written(session, _of_statement(session, node.statement, text), node.path, keep=True)
    return run_plan(session, plan)


HANDLERS: Final[dict[type, Callable[[Any, Any, str | None], RowsResult | JobResult]]] = {
    syntax.CompilePlan: _compile,
    syntax.ExecutePlan: _execute,
    syntax.CompileAndExecutePlan: _both,
}
