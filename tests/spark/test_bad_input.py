"""What is wrong is said clearly, before anything is written."""

from __future__ import annotations

import json
import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest

from millstream.common import Configuration, Duration, OutputTag, Row, Types, WatermarkStrategy
from millstream.datastream import RestartStrategies
from millstream.datastream.connectors import FileSink, FileSource
from millstream.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ForeignCheckpointError,
    MalformedRecordError,
    ProgramError,
    SourceError,
    UnknownFormatError,
    UnpicklableFunctionError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.datastream import DataStream, StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

pytestmark = pytest.mark.spark

SCHEMA = Types.ROW_NAMED(["id", "value"], [Types.LONG(), Types.DOUBLE()])
NO_TIME = WatermarkStrategy.no_watermarks()


@pytest.fixture
def durable(make: Make, tmp_path: Path) -> Callable[[], StreamExecutionEnvironment]:
    """Make an environment on the checkpoint directory of the test."""
    return lambda: make(2, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_nothing_is_written_by_a_program_that_cannot_run(
    durable: Callable[[], StreamExecutionEnvironment], tmp_path: Path
) -> None:
    out, checkpoints = tmp_path / "out", tmp_path / "checkpoints"
    sink = FileSink.json_lines(str(out))

    lock = threading.Lock()

    def locked(value: int) -> Row:
        with lock:
            return Row(value, 0.0)

    env = durable()
    env.from_collection([1], Types.LONG()).map(locked, SCHEMA).name("guard").sink_to(sink)
    with pytest.raises(UnpicklableFunctionError) as unpicklable:
        env.execute("job")
    message = str(unpicklable.value)
    assert "'guard'" in message
    assert "test_bad_input.py:" in message
    assert "variable 'lock'" in message
    assert "open()" in message

    env = durable()
    missing = tmp_path / "missing"
    source = FileSource.csv(str(missing), schema=SCHEMA)
    env.from_source(source, NO_TIME, "rows").sink_to(sink)
    with pytest.raises(SourceError, match="there is no file or directory") as absent:
        env.execute("job")
    assert str(missing) in str(absent.value)

    with pytest.raises(SourceError, match="there is no file or directory"):
        FileSource.csv(str(missing))  # a schema cannot be inferred either

    configuration = Configuration()
    with pytest.raises(ConfigurationError, match=r"parallelism\.default is 'two'"):
        configuration.set_string("parallelism.default", "two")
    env = durable()
    env.from_collection([1], Types.LONG()).map(lambda v: Row(v, 0.0), SCHEMA).sink_to(sink)
    with pytest.raises(ConfigurationError, match=r"state\.backend\.type is 'roxdb'"):
        _execute_with(env, "state.backend.type", "roxdb")

    with pytest.raises(ProgramError):
        durable().execute("nothing in it")

    assert not out.exists()
    assert not checkpoints.exists()


def _execute_with(env: StreamExecutionEnvironment, key: str, value: str) -> None:
    """It may be refused when it is set or when the job is submitted."""
    env.get_configuration().set_string(key, value)
    env.execute("job")


def _bad_file(directory: Path, kind: str) -> Path:
    directory.mkdir()
    if kind == "csv":
        lines = ["id,value", *(f"{i},{i}.5" for i in range(40)), "seven,1.0", "41,41.5"]
    else:
        lines = [json.dumps({"id": i, "value": i + 0.5}) for i in range(40)]
        lines += ['{"id": 1, "value": ', json.dumps({"id": 41, "value": 41.5})]
    path = directory / f"bad.{kind}"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_malformed_line(
    durable: Callable[[], StreamExecutionEnvironment], tmp_path: Path, kind: str
) -> None:
    path = _bad_file(tmp_path / "in", kind)
    line = 42 if kind == "csv" else 41
    reader = FileSource.csv if kind == "csv" else FileSource.json_lines
    out = tmp_path / "out"

    env = durable().set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 10))
    source = reader(str(path.parent), schema=SCHEMA)
    env.from_source(source, NO_TIME, "rows").sink_to(FileSink.json_lines(str(out)))
    with pytest.raises(MalformedRecordError) as malformed:
        env.execute("failing")
    message = str(malformed.value)
    assert f"{path}:{line}: malformed record" in message
    assert "seven" in message or '{"id": 1, "value":' in message
    assert "dead-letter" in message, "what to do about it"
    assert "Traceback" not in message
    assert not list(out.glob("[!._]*"))

    env = durable()
    env.get_configuration().set_string(
        "execution.checkpointing.dir", str(tmp_path / "checkpoints-2")
    )
    source = reader(str(path.parent), schema=SCHEMA, malformed="dead-letter")
    rows = env.from_source(source, NO_TIME, "rows")
    letters = rows.get_side_output(OutputTag("dead-letter"))
    letters.sink_to(FileSink.json_lines(str(tmp_path / "letters")))
    with rows.map(lambda row: row.id).execute_and_collect("setting aside") as found:  # type: ignore[union-attr]
        assert sorted(found) == [*range(40), 41]
    (letter,) = [
        json.loads(text)
        for part in (tmp_path / "letters").glob("[!._]*")
        for text in part.read_text().splitlines()
    ]
    assert letter["place"] == f"{path}:{line}"
    assert letter["raw"] in {"seven,1.0", '{"id": 1, "value": '}
    assert letter["error"]


def _counting(env: StreamExecutionEnvironment, out: Path, directory: Path) -> None:
    source = FileSource.json_lines(
        str(directory), schema=SCHEMA, discovery_interval=Duration.of_millis(100)
    )
    rows: DataStream = env.from_source(source, NO_TIME, "rows")
    summed = rows.key_by(lambda row: row.id % 3).sum("value")
    summed.sink_to(FileSink.json_lines(str(out)))


def test_checkpoint_directory_that_cannot_be_used(
    durable: Callable[[], StreamExecutionEnvironment], tmp_path: Path, eventually: Eventually
) -> None:
    """One stopped job; then another job, an unknown format, and damaged state in its directory."""
    out, checkpoints, directory = (tmp_path / name for name in ("out", "checkpoints", "in"))
    directory.mkdir()
    text = "".join(json.dumps({"id": i, "value": 1.0}) + "\n" for i in range(30))
    (directory / "a.json").write_text(text)
    env = durable()
    _counting(env, out, directory)
    client = env.execute_async("counting")

    def rows() -> int:
        return sum(len(part.read_text().splitlines()) for part in out.glob("[!._]*"))

    try:
        eventually(lambda: rows() == 30, "the results of the first file")
    finally:
        client.cancel().result()
    before, output = contents(checkpoints), contents(out)

    env = durable()
    env.from_collection([Row(1, 1.0)], SCHEMA).sink_to(FileSink.json_lines(str(tmp_path / "new")))
    with pytest.raises(ForeignCheckpointError) as foreign:
        env.execute("another")
    assert "its job is called 'counting', this one 'another'" in str(foreign.value)
    assert not (tmp_path / "new").exists()
    assert contents(checkpoints) == before

    identity = checkpoints / "job.json"
    known = identity.read_text()
    identity.write_text(json.dumps({**json.loads(known), "format_version": 99}))
    env = durable()
    _counting(env, out, directory)
    with pytest.raises(UnknownFormatError, match="format version 99"):
        env.execute("counting")
    identity.write_text(known)
    assert contents(checkpoints) == before

    # What a task would restore from, on a machine that has no copy.
    states = [path for path in (checkpoints / "state").rglob("*") if path.is_file()]
    assert states
    for path in states:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    shutil.rmtree(tmp_path / "local", ignore_errors=True)
    (directory / "b.json").write_text(text)
    env = durable().set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 10))
    _counting(env, out, directory)
    with pytest.raises(CorruptCheckpointError, match="its digest is sha256:") as corrupt:
        env.execute("counting")
    assert any(path.name in str(corrupt.value) for path in states), "which file it is"
    assert contents(out) == output


def test_a_value_that_does_not_fit_its_type(make: Make) -> None:
    def wrong(value: Any) -> Any:
        return str(value)

    env = make(1)
    typed = env.from_collection([1, 2], Types.LONG()).map(wrong, Types.LONG()).name("typed")
    typed.rebalance().print()  # within a chain, values are handed over unchecked
    with pytest.raises(ProgramError) as caught:
        env.execute()
    assert "'1'" in str(caught.value)
    assert "typed" in str(caught.value)
