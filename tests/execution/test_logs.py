"""Log formats, their fields, configuration by file, and what functions log on every engine."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from millstream import logs
from millstream.common import Configuration
from millstream.errors import ConfigurationError
from millstream.logs import FieldsFilter, JsonFormatter, LoggingOperator, LogSettings, TextFormatter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPERATOR: Final = LoggingOperator("parse", "uid-1", 1, 4, 7)
#: A function of each kind that logs, in a stage before and after an exchange.
JOB: Final = """
import logging, sys
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.table import DataTypes, StreamTableEnvironment
from millstream.table.udf import udf

log = logging.getLogger("shop")


class Sum(KeyedProcessFunction):
    def open(self, context):
        log.info("opened")

    def process_element(self, value, context):
        log.info("sum of %s", value)
        yield value


def parse(value):
    log.info("parsed %s", value)
    return value


@udf(result_type=DataTypes.BIGINT())
def double(value):
    log.info("double of %s", value)
    return 2 * value


env = StreamExecutionEnvironment.get_execution_environment()
parsed = env.from_collection([1, 2, 3]).map(parse).name("parse")
parsed.key_by(lambda v: v % 2).process(Sum()).name("sum").sink_to(BlackholeSink())
env.execute("orders")
tables = StreamTableEnvironment.create(env)
tables.create_temporary_function("twice", double)
with tables.sql_query("SELECT twice(x) FROM (VALUES (4), (5)) AS t(x)").execute().collect() as rows:
    assert sorted(row[0] for row in rows) == [8, 10]
"""


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("shop").makeRecord(
        "shop", logging.INFO, "job.py", 1, message, arguments, None, extra=extra or None
    )
    assert FieldsFilter().filter(made)
    return made


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_operator", lambda: OPERATOR)
    monkeypatch.setattr(logs, "_last_job", ("a1", "orders"))


@pytest.fixture(autouse=True)
def _no_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_last_job", ("", ""))
    monkeypatch.setattr(logs, "_fields", logs._Fields())


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """The root logger without handlers, put back in order afterwards."""
    found, ours = logging.getLogger(), logging.getLogger("millstream")
    before = (found.handlers[:], found.level, ours.level)
    found.handlers[:] = []
    monkeypatch.setattr(logs, "_configured", None)
    yield found
    found.handlers[:] = before[0]
    found.setLevel(before[1])
    ours.setLevel(before[2])


@pytest.mark.usefixtures("operator")
def test_json_has_the_fields() -> None:
    value = json.loads(JsonFormatter().format(record("order %d", 3, order=3)))
    assert value.pop("time").endswith("Z")
    assert value.pop("process") == os.getpid()
    assert value == {
        "level": "INFO",
        "logger": "shop",
        "message": "order 3",
        "thread": "MainThread",
        "order": 3,
        "job_id": "a1",
        "job_name": "orders",
        "operator": "parse",
        "operator_uid": "uid-1",
        "subtask": 1,
        "parallelism": 4,
        "checkpoint_id": 7,
    }


@pytest.mark.usefixtures("operator")
def test_text_has_operator_and_subtask() -> None:
    line = TextFormatter().format(record("order %d", 3))
    assert line.endswith(" INFO shop: [parse (2/4)] order 3")


def test_text_outside_of_operators_is_as_before() -> None:
    made = record("order %d", 3)
    before = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s").format(made)
    assert TextFormatter().format(made) == before


def test_fields_without_value_are_left_out_of_json() -> None:
    value = json.loads(JsonFormatter().format(record("x")))
    assert set(value) == {"time", "level", "logger", "message", "process", "thread"}


@pytest.mark.usefixtures("operator")
def test_fields_of_the_program_win() -> None:
    value = json.loads(JsonFormatter().format(record("x", operator="theirs", subtask="nine")))
    assert (value["operator"], value["subtask"]) == ("theirs", "nine")
    assert value["operator_uid"] == "uid-1"


def test_threads_of_the_driver_have_their_job_and_checkpoint() -> None:
    logs.begin_job("b2", "totals")
    with logs.at_checkpoint(8):
        inside = json.loads(JsonFormatter().format(record("x")))
    outside = json.loads(JsonFormatter().format(record("x")))
    assert (inside["job_id"], inside["job_name"], inside["checkpoint_id"]) == ("b2", "totals", 8)
    assert "checkpoint_id" not in outside


def test_secrets_are_masked_in_every_format() -> None:
    address = "postgresql://user:hunter2@host/db"
    made = record("connecting to %s with password=hunter2", address, api_key="hunter2")
    assert "hunter2" not in JsonFormatter().format(made)
    assert "hunter2" not in TextFormatter().format(made)
    assert "hunter2" not in logging.Formatter("%(message)s").format(made)
    error = ValueError(address)
    failed = record("failed")
    failed.exc_info = (ValueError, error, None)
    for formatter in (JsonFormatter(), TextFormatter()):
        text = formatter.format(failed)
        assert "ValueError" in text
        assert "hunter2" not in text


def test_a_message_whose_arguments_do_not_fit_is_left_to_logging() -> None:
    made = record("%d %d", 3)
    with pytest.raises(TypeError):
        made.getMessage()


@pytest.mark.parametrize("suffix", ["yaml", "json", "ini"])
def test_logging_is_configured_by_a_file(suffix: str, tmp_path: Path, root: logging.Logger) -> None:
    target = tmp_path / "driver.log"
    handler = {"class": "logging.FileHandler", "filename": str(target), "formatter": "mine"}
    value = {
        "formatters": {"mine": {"format": "%(job_name)s|%(operator)s|%(message)s"}},
        "handlers": {"file": handler},
        "root": {"level": "INFO", "handlers": ["file"]},
    }
    ini = (
        "[loggers]\nkeys=root\n[handlers]\nkeys=file\n[formatters]\nkeys=mine\n"
        "[logger_root]\nlevel=INFO\nhandlers=file\n"
        f"[handler_file]\nclass=FileHandler\nformatter=mine\nargs=({str(target)!r},)\n"
        "[formatter_mine]\nformat=%(job_name)s|%(operator)s|%(message)s\n"
    )
    file = tmp_path / f"logging.{suffix}"
    file.write_text(ini if suffix == "ini" else json.dumps(value))
    configuration = Configuration({"millstream.logging.config-file": str(file)})
    logs.configure_driver(configuration)
    logs.begin_job("a1", "orders")
    logging.getLogger("shop").info("hello")
    for each in root.handlers:
        each.close()
    assert target.read_text() == "orders||hello\n"
    settings = LogSettings.of(configuration, "a1", "orders")
    assert settings.file == (ini if suffix == "ini" else value)
    assert settings.level == logging.INFO


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing.yaml", None, "cannot be read"),
        ("a.yaml", "- 1", "must contain a dictionary"),
        ("b.yaml", "a: [", "is not YAML or JSON"),
        ("c.yaml", "handlers: {x: {class: no.such.Class}}", "logging cannot be configured"),
        ("d.ini", "[loggers]\n", "logging cannot be configured"),
    ],
)
@pytest.mark.usefixtures("root")
def test_a_wrong_file_is_an_error(
    name: str, content: str | None, said: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    configuration = Configuration({"millstream.logging.config-file": str(tmp_path / name)})
    with pytest.raises(ConfigurationError, match=said):
        logs.configure_driver(configuration)


def test_without_options_logging_is_left_to_the_program(root: logging.Logger) -> None:
    root.handlers[:] = []  # those of pytest, which it adds before each test
    logs.configure_driver(Configuration())
    assert root.handlers == []
    settings = LogSettings.of(Configuration(), "a1", "orders")
    assert settings.level is None


def test_a_worker_that_inherits_no_handlers_logs_as_the_driver(
    root: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.handlers[:] = []  # those of pytest, which it adds before each test
    for name in ("_operator", "_last_job"):
        monkeypatch.setattr(logs, name, getattr(logs, name))
    driver = LogSettings("a1", "orders", ("elsewhere", 1), logging.INFO, "json", "")
    logs.configure_worker(driver, lambda: OPERATOR)
    logs.configure_worker(driver, lambda: OPERATOR)
    assert [type(each.formatter) for each in root.handlers] == [JsonFormatter]
    assert root.level == logging.INFO
    assert json.loads(JsonFormatter().format(record("x")))["operator"] == "parse"


def test_the_driver_is_no_worker(root: logging.Logger) -> None:
    root.handlers[:] = []  # those of pytest, which it adds before each test
    settings = LogSettings.of(Configuration(), "a1", "orders")
    logs.configure_worker(settings, lambda: OPERATOR)
    assert root.handlers == []
    assert "operator" not in json.loads(JsonFormatter().format(record("x")))


ENGINES: Final = [
    pytest.param(["--target", "local"], id="local"),
    pytest.param(["--target", "local", "--pipelined"], id="pipelined"),
    pytest.param(
        ["--master", "local[2]"], id="spark", marks=[pytest.mark.slow, pytest.mark.extended]
    ),
    pytest.param(
        ["--master", "local[2]", "--pipelined"],
        id="slots",
        marks=[pytest.mark.slow, pytest.mark.extended],
    ),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_functions_log_with_operator_and_subtask(engine: list[str], tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    options = ["-p", "2", "-D", "millstream.logging.format=json"]
    command = [sys.executable, "-m", "millstream", "run", *engine, *options, str(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stderr.splitlines()]  # nothing else, of Spark either
    mine = [each for each in found if each["logger"] == "shop"]
    messages = Counter(each["message"] for each in mine)
    # A subtask on Spark may be in another process in each micro-batch.
    assert messages.pop("opened") >= 2
    assert messages == {
        **{f"parsed {n}": 1 for n in (1, 2, 3)},
        **{f"sum of {n}": 1 for n in (1, 2, 3)},
        **{f"double of {n}": 1 for n in (4, 5)},
    }
    for each in mine:
        assert {"job_id", "operator", "operator_uid", "subtask", "parallelism"} <= set(each), each
    operators = _values(mine, "operator")
    assert operators["parsed"] == {"parse"}
    assert operators["sum"] == operators["opened"] == {"sum"}
    assert len(operators["double"]) == 1
    assert _values(mine, "subtask")["parsed"] == _values(mine, "subtask")["opened"] == {0, 1}
    processed = [each for each in mine if each["message"] != "opened"]
    assert {each["checkpoint_id"] for each in processed} <= {0, 1}
    assert len(_values(mine, "job_id")["parsed"] | _values(mine, "job_id")["double"]) == 2
    lines = Counter(
        (each["job_id"], each["checkpoint_id"])
        for each in found
        if each["logger"].startswith("millstream") and "checkpoint_id" in each
    )
    assert lines
    assert set(lines.values()) == {1}, "one line per checkpoint at INFO"


def _values(found: list[dict[str, Any]], field: str) -> dict[str, set[Any]]:
    """Return the values of a field by the first word of the message."""
    made: dict[str, set[Any]] = {}
    for each in found:
        made.setdefault(each["message"].split()[0], set()).add(each[field])
    return made
