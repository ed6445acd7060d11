"""Statements of catalogs, modules and jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration import options as config
from millstream.configuration.redaction import redacted_options
from millstream.entry_points import Extensions
from millstream.errors import ProgramError, UnsupportedSqlError, ValidationError
from millstream.sql.binder.scope import validation_error
from millstream.sql.catalog.catalog import DEFAULT_DATABASE, CatalogDescription, CreatedCatalog
from millstream.sql.catalog.identifiers import quoted
from millstream.sql.catalog.objects import CatalogDatabase
from millstream.sql.parser import statement_nodes as syntax
from millstream.sql.statements.session import OK, RowsResult, texts
from millstream.sql.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.catalog.catalog import Catalog
    from millstream.sql.statements.session import Session, SessionJob


_MEMORY: Final = "generic_in_memory"
_FILES: Final = "filesystem"
#: By the types that CREATE CATALOG has for them: classes of catalogs.
CATALOGS: Final[Extensions[type[CreatedCatalog]]] = Extensions(
    "millstream.catalogs",
    "catalog",
    {
        _MEMORY: "millstream.sql.catalog.catalog:GenericInMemoryCatalog",
        _FILES: "millstream.sql.catalog.file_catalog:FileCatalog",
    },
    ("OPTIONS", "from_options"),
)
#: Of those that a program has registered.
_TYPES: Final = {"GenericInMemoryCatalog": _MEMORY, "FileCatalog": _FILES}


def _create_catalog(session: Session, node: Any, text: str | None) -> RowsResult:
    options = {each.key: each.value for each in node.options}
    name = node.name.value
    if session.catalogs.has_catalog(name) and node.if_not_exists:
        return OK
    described = CatalogDescription(options.pop("type", None), options, node.comment)
    _check(session, name, described, node, text)
    session.catalogs.register(name, _made(name, described), described)
    return OK


def _check(
    session: Session, name: str, described: CatalogDescription, node: Any, text: str | None
) -> None:
    """Refuse what no catalog can be made of.

    Raises:
        ValidationError: the type is not known, or an option, or one is missing.
    """
    context = session.context(text)
    kind, options = described.kind, described.options
    if kind not in CATALOGS:
        given = f"'{kind}'" if kind else "missing"
        known = ", ".join(f"'{each}'" for each in CATALOGS)
        message = f"The option 'type' of a catalog is one of {known}; it is {given}."
        raise context.error(node, message)
    known_options = {each.key: each for each in CATALOGS[str(kind)].OPTIONS}
    for key in options:
        if key not in known_options:
            hint = did_you_mean(key, known_options)
            message = f"Catalog '{name}' has no option '{key}'.{hint}"
            raise context.error(node, message)
    for key, option in known_options.items():
        if option.required and key not in options:
            message = f"Catalog '{name}' needs the option '{key}'."
            raise context.error(node, message)


def _made(name: str, described: CatalogDescription) -> Catalog:
    return CATALOGS[str(described.kind)].from_options(name, described.options)


def _described(
    session: Session, name: str, node: Any, text: str | None
) -> CatalogDescription | None:
    """Return what is known of a catalog; None of one that a program has registered.

    Raises:
        ValidationError: there is no such catalog.
    """
    if not session.catalogs.has_catalog(name):
        hint = did_you_mean(name, session.catalogs.catalog_names())
        message = f"Catalog '{name}' does not exist.{hint}"
        raise session.context(text).error(node, message)
    return session.catalogs.description(name)


def _of_statement(session: Session, name: str, node: Any, text: str | None) -> CatalogDescription:
    found = _described(session, name, node, text)
    if found is None:
        message = (
            f"Catalog '{name}' was not made by CREATE CATALOG or create_catalog(), so that nobody "
            "knows its options."
        )
        raise session.context(text).error(node, message)
    return found


def _alter_catalog(session: Session, node: Any, text: str | None) -> RowsResult:
    name, action = node.name.value, node.action
    before = _of_statement(session, name, node.name, text)
    if isinstance(action, syntax.SetComment):
        session.catalogs.describe(name, replace(before, comment=action.comment))
        return OK
    context = session.context(text)
    options, kind = dict(before.options), before.kind
    if isinstance(action, syntax.SetOptions):
        options |= {each.key: each.value for each in action.options}
        kind = options.pop("type", kind)
        if kind != before.kind:
            message = f"The type of catalog '{name}' is '{before.kind}', and stays so."
            raise context.error(action, message)
    else:
        if "type" in action.keys:
            raise context.error(action, "ALTER CATALOG RESET does not support changing 'type'.")
        options = {key: value for key, value in options.items() if key not in action.keys}
    after = replace(before, options=options)
    _check(session, name, after, action, text)
    if after.options != before.options:
        _change(session, name, before, after)
    session.catalogs.describe(name, after)
    return OK


def _change(
    session: Session, name: str, before: CatalogDescription, after: CatalogDescription
) -> None:
    """Have a catalog other options; what is in memory stays there, unlike in Flink."""
    if before.kind != _MEMORY:
        session.catalogs.exchange(name, _made(name, after))
        return
    found = session.catalogs.catalog(name)
    found.default_database = after.options.get(DEFAULT_DATABASE.key, "default")
    found.create_database(found.default_database, CatalogDatabase(), ignore_if_exists=True)


def _drop_catalog(session: Session, node: Any, text: str | None) -> RowsResult:
    del text
    session.catalogs.unregister(node.name.value, if_exists=node.if_exists)
    return OK


def _use_catalog(session: Session, node: Any, text: str | None) -> RowsResult:
    del text
    session.catalogs.use_catalog(node.name.value)
    return OK


def describe_catalog(session: Session, node: Any, text: str | None) -> RowsResult:
    """The rows of DESCRIBE CATALOG [EXTENDED]."""
    name = node.name.last
    found = _described(session, name, node.name, text)
    if found is None:
        kind = _TYPES.get(type(session.catalogs.catalog(name)).__name__, "custom")
        found = CatalogDescription(kind, {}, None)
    rows = [["name", name], ["type", found.kind or ""], ["comment", found.comment or ""]]
    if node.extended:
        shown = redacted_options(found.options)
        rows += [[f"option:{key}", value] for key, value in sorted(shown.items())]
    return texts(["info name", "info value"], rows)


def show_create_catalog(session: Session, node: Any, text: str | None) -> RowsResult:
    """CREATE CATALOG, as it would be now."""
    name = node.name.last
    found = _of_statement(session, name, node.name, text)
    pairs = sorted({**redacted_options(found.options), "type": str(found.kind)}.items())
    options = ",\n".join(f"  {_text(key)} = {_text(value)}" for key, value in pairs)
    comment = "" if not found.comment else f"COMMENT {_text(found.comment)}\n"
    return texts(["result"], [[f"CREATE CATALOG {quoted(name)}\n{comment}WITH (\n{options}\n)\n"]])


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# -- modules ---------------------------------------------------------------------------------------


def _on_modules(text: str | None, node: Any, do: Callable[[], None]) -> RowsResult:
    """Run an action; its errors point to the module in the statement."""
    try:
        do()
    except UnsupportedSqlError as error:
        raise UnsupportedSqlError(str(validation_error(text, node, str(error)))) from error
    except ValidationError as error:
        raise validation_error(text, node, str(error)) from error
    return OK


def _load_module(session: Session, node: Any, text: str | None) -> RowsResult:
    return _on_modules(text, node.name, lambda: session.modules.load(node.name.value))


def _unload_module(session: Session, node: Any, text: str | None) -> RowsResult:
    return _on_modules(text, node.name, lambda: session.modules.unload(node.name.value))


def _use_modules(session: Session, node: Any, text: str | None) -> RowsResult:
    names = [each.value for each in node.names]
    return _on_modules(text, node, lambda: session.modules.use(names))


# -- jobs ------------------------------------------------------------------------------------------


_JOB_COLUMNS: Final = ("job id", "job name", "status", "start time")


def show_jobs(session: Session) -> RowsResult:
    """The rows of SHOW JOBS."""
    return texts(_JOB_COLUMNS, [each.shown() for each in session.jobs.all()])


def describe_job(session: Session, node: Any, text: str | None) -> RowsResult:
    """The row of DESCRIBE JOB."""
    return texts(_JOB_COLUMNS, [_job(session, node.name.last, node, text).shown()])


def _job(session: Session, job_id: str, node: Any, text: str | None) -> SessionJob:
    found = session.jobs.find(job_id)
    if found is None:
        known = [each.job.get_job_id() for each in session.jobs.all()]
        there = f"There are: {listed(known)}" if known else "It has started none"
        message = f"No statement of this session has started a job '{job_id}'. {there}."
        raise session.context(text).error(node, message)
    return found


def _stop_job(session: Session, node: Any, text: str | None) -> RowsResult:
    found = _job(session, node.job_id, node, text)
    status = found.job.get_job_status()
    if status.is_terminal_state():
        message = f"Job '{node.job_id}' has ended: it is {status.name}."
        raise session.context(text).error(node, message)
    if not node.with_savepoint:
        found.job.cancel()
        return OK
    directory = session.configuration.get(config.SAVEPOINT_DIRECTORY) or None
    try:
        path = found.job.stop_with_savepoint(directory, drain=node.with_drain)
        return texts(["savepoint path" if directory else "checkpoint directory"], [[path]])
    except ProgramError as error:
        message = (
            f"{error}. In SQL: SET '{config.CHECKPOINTS_DIRECTORY.key}' = '/a/directory', or"
            f" '{config.SAVEPOINT_DIRECTORY.key}', before the INSERT; STOP JOB"
            f" '{node.job_id}' cancels the job"
        )
        raise session.context(text).error(node, message) from error


HANDLERS: Final[dict[type, Callable[[Any, Any, str | None], RowsResult]]] = {
    syntax.CreateCatalog: _create_catalog,
    syntax.AlterCatalog: _alter_catalog,
    syntax.DropCatalog: _drop_catalog,
    syntax.UseCatalog: _use_catalog,
    syntax.LoadModule: _load_module,
    syntax.UnloadModule: _unload_module,
    syntax.UseModules: _use_modules,
    syntax.StopJob: _stop_job,
}
