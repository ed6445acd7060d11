"""Statements of catalogs, modules and functions: what they show is what Flink shows.

What it is: the rows of Flink 2.3.0, and refusals with their places.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment

from millstream.checkpoint.savepoint import SavepointFormatType
from millstream.common import Row
from millstream.errors import MillstreamError, ProgramError, UnsupportedSqlError
from millstream.execution.job_client import JobStatus
from millstream.table import DataTypes, Module, ModuleEntry
from millstream.table.catalog import GenericInMemoryCatalog
from millstream.table.udf import udf

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment


@pytest.fixture
def env() -> TableEnvironment:
    return environment()


def rows(env: TableEnvironment, text: str) -> list[tuple[Any, ...]]:
    found: Any = env.execute_sql(text)
    with found.collect() as collected:
        return [tuple(each) for each in collected]


@udf(result_type=DataTypes.INT())
def twice(number: int) -> int:
    return number * 2


def test_a_catalog_is_altered(env: TableEnvironment) -> None:
    env.execute_sql(
        "CREATE CATALOG c COMMENT 'it''s' WITH ('type' = 'generic_in_memory', 'default-database' = "
        "'db')"
    )
    shown = [("name", "c"), ("type", "generic_in_memory"), ("comment", "it's")]
    assert rows(env, "DESC CATALOG c") == shown
    assert rows(env, "DESCRIBE CATALOG EXTENDED c") == [*shown, ("option:default-database", "db")]
    ((text,),) = rows(env, "SHOW CREATE CATALOG c")
    assert text.splitlines() == [
        *("CREATE CATALOG `c`", "COMMENT 'it''s'", "WITH ("),
        *("  'default-database' = 'db',", "  'type' = 'generic_in_memory'", ")"),
    ]
    env.execute_sql("CREATE TABLE c.db.t (a INT) WITH ('connector' = 'print')")
    env.execute_sql("ALTER CATALOG c SET ('default-database' = 'other')")
    env.execute_sql("ALTER CATALOG c COMMENT 'new'")
    env.execute_sql("USE CATALOG c")
    assert env.get_current_database() == "other"
    assert rows(env, "SHOW TABLES FROM c.db") == [("t",)]
    assert rows(env, "DESCRIBE CATALOG EXTENDED c")[2:] == [
        ("comment", "new"),
        ("option:default-database", "other"),
    ]
    env.execute_sql("ALTER CATALOG c RESET ('default-database')")
    assert rows(env, "DESCRIBE CATALOG EXTENDED c")[3:] == []
    assert rows(env, "SHOW DATABASES") == [("db",), ("default",), ("other",)]


def test_a_catalog_of_files_is_altered(env: TableEnvironment, tmp_path: Path) -> None:
    for name in "ab":
        options = f"'type' = 'filesystem', 'path' = '{tmp_path / name}'"
        env.execute_sql(f"CREATE CATALOG {name} WITH ({options})")
        env.execute_sql(f"CREATE TABLE {name}.`default`.t{name} (a INT) WITH ('connector' = 'x')")
    env.execute_sql(f"ALTER CATALOG a SET ('path' = '{tmp_path / 'b'}')")
    assert rows(env, "SHOW TABLES FROM a.`default`") == [("tb",)]
    (shown,) = rows(env, "SHOW CREATE CATALOG a")
    env.execute_sql("DROP CATALOG a")
    env.execute_sql(shown[0])
    assert rows(env, "SHOW TABLES FROM a.`default`") == [("tb",)]


def test_what_cannot_be_altered(env: TableEnvironment) -> None:
    env.execute_sql("CREATE CATALOG c WITH ('type' = 'generic_in_memory')")
    env.register_catalog("own", GenericInMemoryCatalog("own"))
    for text, message in [
        ("ALTER CATALOG c SET ('type' = 'jdbc')", "type of catalog 'c' is 'generic_in_memory'"),
        ("ALTER CATALOG c RESET ('type')", "does not support changing 'type'"),
        ("ALTER CATALOG c SET ('default-databas' = 'x')", "no option 'default-databas'. Did you"),
        ("ALTER CATALOG d COMMENT 'x'", "Catalog 'd' does not exist"),
        ("DESCRIBE CATALOG d", "Catalog 'd' does not exist"),
        ("SHOW CREATE CATALOG own", "'own' was not made by CREATE CATALOG"),
        ("ALTER CATALOG own COMMENT 'x'", "'own' was not made by CREATE CATALOG"),
    ]:
        with pytest.raises(MillstreamError) as refused:
            env.execute_sql(text)
        assert message in str(refused.value)
        assert "SQL, line 1, column" in str(refused.value)
    assert rows(env, "DESCRIBE CATALOG EXTENDED own")[1:] == [
        ("type", "generic_in_memory"),
        ("comment", ""),
    ]


def test_modules(env: TableEnvironment) -> None:
    assert rows(env, "SHOW MODULES") == [("core",)]
    assert rows(env, "SHOW FULL MODULES") == [("core", True)]
    assert repr(env.list_full_modules()) == "[ModuleEntry{name='core', used=true}]"
    env.use_modules()
    assert env.list_modules() == []
    assert env.list_full_modules() == [ModuleEntry("core", used=False)]
    assert env.list_full_modules()[0] < ModuleEntry("core", used=True)
    assert rows(env, "SHOW FUNCTIONS LIKE 'up%'") == []
    env.execute_sql("USE MODULES core")
    assert ("upper",) in rows(env, "SHOW FUNCTIONS LIKE 'up%'")
    env.execute_sql("UNLOAD MODULE core")
    assert rows(env, "SHOW FULL MODULES") == []
    assert rows(env, "SHOW FUNCTIONS") == []
    assert "UPPER" in env.explain_sql("SELECT UPPER(x) FROM (VALUES ('a'), ('b')) AS t (x)")
    env.load_module("core", Module())
    assert env.list_modules() == ["core"]
    for text, message, column in [
        ("LOAD MODULE core", "A module with name 'core' already exists", 13),
        ("LOAD MODULE hive", "Module 'hive' is not in this release: there is 'core' alone", 13),
        ("UNLOAD MODULE nope", "No module with name 'nope' exists", 15),
        ("USE MODULES core, core", "Module 'core' appears more than once", 1),
    ]:
        with pytest.raises(MillstreamError) as refused:
            env.execute_sql(text)
        assert f"SQL, line 1, column {column}: {message}" in str(refused.value)
    with pytest.raises(MillstreamError, match="No module with name 'nope'"):
        env.unload_module("nope")


def test_functions_are_described(env: TableEnvironment) -> None:
    shown = [("is system function", "true"), ("is temporary", "false")]
    more = [("requirements", "[]"), ("is deterministic", "true")]
    assert rows(env, "DESCRIBE FUNCTION `SUM`") == shown
    assert rows(env, "DESCRIBE FUNCTION EXTENDED `SUM`") == [
        *shown,
        ("kind", "AGGREGATE"),
        *more,
        ("supports constant folding", "true"),
        ("signature", "SUM(<NUMERIC>)"),
    ]
    rand = dict(rows(env, "DESCRIBE FUNCTION EXTENDED RAND"))
    assert rand["is deterministic"] == "false"
    assert rand["signature"].splitlines()[0] == "RAND()"
    name = f"{__name__}.twice"
    env.execute_sql(f"CREATE FUNCTION f AS '{name}' LANGUAGE PYTHON")
    env.create_temporary_function("g", twice)
    env.create_temporary_system_function("h", twice)
    own = [("is system function", "false"), ("is temporary", "false")]
    assert rows(env, "DESCRIBE FUNCTION f") == [
        *own,
        ("class name", name),
        ("function language", "PYTHON"),
    ]
    assert rows(env, "DESCRIBE FUNCTION EXTENDED f")[4:7] == [("kind", "SCALAR"), *more]
    assert rows(env, "DESCRIBE FUNCTION g") == [own[0], ("is temporary", "true")]
    assert rows(env, "DESCRIBE FUNCTION h") == [shown[0], ("is temporary", "true")]
    with pytest.raises(MillstreamError, match=r"column 19: Function .*uppr.*Did you mean 'UPPER'"):
        env.execute_sql("DESCRIBE FUNCTION uppr")


class _Job:
    """A job that runs until somebody ends it."""

    def __init__(self, job_id: str) -> None:
        self.job_id, self.status = job_id, JobStatus.RUNNING

    def get_job_id(self) -> str:
        return self.job_id

    def get_job_status(self) -> JobStatus:
        return self.status

    def cancel(self) -> None:
        self.status = JobStatus.CANCELED

    def stop(self, *, drain: bool = False) -> str:
        self.status = JobStatus.FINISHED
        return f"/kept/{self.job_id}{'-drained' if drain else ''}"

    def stop_with_savepoint(
        self,
        directory: str | None = None,
        *,
        drain: bool = False,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> str:
        del format_type
        stopped = self.stop(drain=drain)
        return stopped if directory is None else f"{directory}/savepoint-{self.job_id}"


class _Temporary(_Job):
    def stop(self, *, drain: bool = False) -> str:
        del drain
        message = "job 'insert' keeps its checkpoints in a temporary directory"
        raise ProgramError(message)


def test_a_job_without_kept_checkpoints_is_not_stopped_for_a_savepoint(
    env: TableEnvironment,
) -> None:
    job: Any = _Temporary("t")
    env.session.jobs.add("insert t", job)
    with pytest.raises(MillstreamError) as refused:
        env.execute_sql("STOP JOB 't' WITH SAVEPOINT")
    assert "temporary directory. In SQL: SET 'execution.checkpointing.dir'" in str(refused.value)
    assert "STOP JOB 't' cancels the job" in str(refused.value)
    assert job.status is JobStatus.RUNNING


def test_a_job_is_stopped_with_a_savepoint_where_there_is_a_directory(
    env: TableEnvironment,
) -> None:
    job: Any = _Job("s")
    env.session.jobs.add("insert s", job)
    env.execute_sql("SET 'execution.checkpointing.savepoint-dir' = '/savepoints'")
    stopped = env.execute_sql("STOP JOB 's' WITH SAVEPOINT")
    assert stopped.get_resolved_schema().get_column_names() == ["savepoint path"]
    with stopped.collect() as found:
        assert [str(each) for each in found] == [str(Row("/savepoints/savepoint-s"))]
    assert job.status is JobStatus.FINISHED


def test_jobs_are_shown_and_stopped(env: TableEnvironment) -> None:
    assert rows(env, "SHOW JOBS") == []
    for each in "abc":
        job: Any = _Job(each)
        env.session.jobs.add(f"insert {each}", job)
    assert [each[:3] for each in rows(env, "SHOW JOBS")] == [
        (each, f"insert {each}", "RUNNING") for each in "abc"
    ]
    env.execute_sql("STOP JOB 'a'")
    stopped = env.execute_sql("STOP JOB 'b' WITH SAVEPOINT")
    assert stopped.get_resolved_schema().get_column_names() == ["checkpoint directory"]
    with stopped.collect() as found:
        assert [str(each) for each in found] == [str(Row("/kept/b"))]
    assert rows(env, "STOP JOB 'c' WITH SAVEPOINT WITH DRAIN") == [("/kept/c-drained",)]
    ended = [each[2] for each in rows(env, "SHOW JOBS")]
    assert ended == ["CANCELED", "FINISHED", "FINISHED"]
    (described,) = rows(env, "DESCRIBE JOB 'b'")
    assert described[:3] == ("b", "insert b", "FINISHED")
    assert dt.datetime.fromisoformat(described[3]) <= dt.datetime.now(dt.UTC).replace(tzinfo=None)
    for text, message in [
        ("STOP JOB 'a'", "column 1: Job 'a' has ended: it is CANCELED"),
        ("STOP JOB 'x'", "column 1: No statement of this session has started a job 'x'. There are"),
        ("DESCRIBE JOB 'x'", "has started a job 'x'"),
    ]:
        with pytest.raises(MillstreamError) as refused:
            env.execute_sql(text)
        assert message in str(refused.value)
    for number in range(150):
        job = _Job(str(number))
        job.status = JobStatus.FINISHED
        env.session.jobs.add("many", job)
    assert len(rows(env, "SHOW JOBS")) == 100


def test_there_are_none_of_some_objects(env: TableEnvironment) -> None:
    for kind in ("MATERIALIZED TABLES", "MODELS", "JARS"):
        assert rows(env, f"SHOW {kind}") == []
    env.execute_sql("CREATE DATABASE d COMMENT 'x' WITH ('k' = 'v')")
    assert rows(env, "DESCRIBE DATABASE EXTENDED d")[2:] == [("comment", "x"), ("property:k", "v")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SHOW PROCEDURES", "SHOW PROCEDURES is not in this release; there are no procedures"),
        ("CALL p()", "CALL is not in this release; there are no procedures"),
        ("ANALYZE TABLE t COMPUTE STATISTICS", "ANALYZE TABLE is not in this release; say what"),
        ("SHOW CREATE MODEL m", "a MODEL is not supported"),
        ("CREATE MODEL m WITH ('provider' = 'x')", "a MODEL is not supported; call the model in"),
        ("DROP MATERIALIZED TABLE m", "a MATERIALIZED TABLE is not supported; INSERT INTO"),
    ],
)
def test_what_is_not_there_has_a_reason_and_a_place(
    env: TableEnvironment, text: str, message: str
) -> None:
    with pytest.raises(UnsupportedSqlError) as refused:
        env.execute_sql(text)
    shown = str(refused.value)
    assert message in shown
    assert "SQL, line 1, column " in shown
    assert "^" in shown
