"""``millstream state`` lists, shows, compares and exports; jobs answer queries of their state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest
from tests.checkpoint.test_savepoint import save
from tests.cli.test_savepoint_command import running
from tests.pipelined.test_stop import lines
from tests.state_processor.test_state_processor import RECORDS, Sums

from millstream.cli.main import main
from millstream.errors import StateError
from millstream.state_processor import SavepointReader, SavepointWriter

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def made(tmp_path: Path) -> str:
    with SavepointWriter.new_savepoint() as writer:
        writer.with_operator("sums", Sums(), RECORDS[:8], lambda each: each[0])
        return writer.write(tmp_path / "made")


def test_states_are_listed(made: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", made]) == 0
    shown = capsys.readouterr().out
    assert "Checkpoint 0 of job 'bootstrap'" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["sums", "sum", "value", "Long", "2"] in [row[:5] for row in rows]
    assert ["sums", "(timers.event)", "timers", "2"] in [row[:4] for row in rows]


def test_entries_of_a_key_are_shown(made: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", made, "show", "sums", "names", "--key", "a"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown == [
        "key 'a', map_key 'n0', value 2",
        "key 'a', map_key 'n1', value 3",
    ]
    assert main(["state", made, "show", "sums", "items", "--limit", "1"]) == 0
    assert "and more; --limit shows more than 1" in capsys.readouterr().out
    assert main(["state", made, "show", "sums", "other"]) == 1
    assert "has no state 'other'; there are: items, names, sum" in capsys.readouterr().err


def test_two_savepoints_are_compared(
    tmp_path: Path, made: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["state", made, "diff", made]) == 0
    assert "The state is the same" in capsys.readouterr().out
    with SavepointWriter.from_existing_savepoint(made) as writer:
        rows = [{"key": "a", "value": 100}, {"key": "c", "value": 7}]
        other = writer.with_keyed_state("sums", "sum", rows).write(tmp_path)
    assert main(["state", made, "diff", other]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "operator 'sums', state sum: 3 differences",
        "  - key 'b': 6",
        "  + key 'c': 7",
        "  ~ key 'a': 6 -> 100",
    ]


def test_states_are_exported(tmp_path: Path, made: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "exported"
    assert main(["state", made, "export", str(target)]) == 0
    rows = duckdb.read_parquet(f"{target}/sums/sum.parquet").order("key").fetchall()
    assert rows == [("a", 6), ("b", 6)]
    capsys.readouterr()
    assert main(["state", made, "export", str(target)]) == 1
    assert "is not empty" in capsys.readouterr().err


def test_checkpoints_are_read_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "first")
    assert main(["state", str(tmp_path / "first" / "checkpoints"), "--checkpoint", "0"]) == 0
    assert "Checkpoint 0 of job 'counts'" in capsys.readouterr().out
    assert main(["state", str(tmp_path / "nowhere")]) == 1


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_a_running_job_answers_from_its_last_checkpoint(tmp_path: Path, execution: str) -> None:
    client = running(tmp_path, execution, {})
    saved = client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    with SavepointReader.read(saved) as reader:
        (info,) = reader.states("greatest")
        greatest = {
            row["key"]: row["value"] for row in reader.read_state("greatest", info.name).rows()
        }
    found = client.query_state("greatest", info.name, 1).result()
    assert found.value % 5 == 1
    assert found.value >= greatest[1]
    assert found.checkpoint_id >= reader.checkpoint_id
    assert found.last_access is None
    assert client.query_state("greatest", info.name, 77).result().value is None
    with pytest.raises(StateError, match="has no keyed state of an operator with uid 'x'"):
        client.query_state("x", info.name, 1).result()
    with pytest.raises(StateError, match="operator 'greatest' has no keyed state 'x'"):
        client.query_state("greatest", "x", 1).result()
    client.stop().result()
    # The last checkpoint has all that was read.
    assert client.query_state("greatest", info.name, 1).result().value == max(
        int(line) for line in lines(tmp_path) if int(line) % 5 == 1
    )
