"""Canonical savepoints have all state, exactly, in columns that others read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.checkpoint import kept_program as program

from millstream.checkpoint.inspect import inspect_checkpoint
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.savepoint import DESCRIPTION, read_canonical
from millstream.contracts.operator import OperatorStateKind
from millstream.errors import StateError
from millstream.state.canonical.operator_rows import OperatorLayout
from millstream.state.canonical.restore import restore_canonical
from millstream.state.reader import open_state, readable_value
from millstream.state.registry import SWEPT
from millstream.testing.mini_cluster import MiniCluster
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.checkpoint.canonical import CanonicalSavepoint
    from millstream.checkpoint.model import Manifest
    from millstream.contracts.checkpoint_storage import CheckpointStorage

CUT, EPOCHS = 12, 3


@pytest.fixture(scope="module", params=["hashmap", "rocksdb"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of ``kept_program.py`` and a savepoint of its last checkpoint."""
    directory = tmp_path_factory.mktemp("job")
    graph = program.build(2, directory / "results").get_job_graph("saved")
    cluster = MiniCluster(
        graph, directory / "checkpoint", limits=[2 * CUT] * 9, state_backend=request.param
    )
    cluster.run(EPOCHS - 1)
    asked = cluster.job.savepoints.ask(str(directory / "savepoints"))
    cluster.run(1)
    path = directory / asked.result()
    cluster.coordinator.close()
    return path


def checkpoint_of(saved: Path) -> LocalStorage:
    return LocalStorage(saved.parents[1] / "checkpoint")


def canonical(saved: Path) -> CanonicalSavepoint:
    found = read_canonical(LocalStorage(saved))
    assert found is not None
    return found


def stored(storage: CheckpointStorage, manifest: Manifest, uid: str) -> dict[Any, Any]:
    """Everything in the stores of an operator, its sections by name instead of by number."""
    found: dict[Any, Any] = {}
    with open_state(storage, manifest, uid) as state:
        for number, (store, handle) in enumerate(state._stores):
            names: dict[tuple[str, bytes], str] = {}
            for name, value in store.scan(b"M", b"N"):
                if value[:1] != b"{" or name.startswith(b"M\0section:"):
                    if name != SWEPT:
                        found[number, name] = value
                    continue
                meta = json.loads(value)
                names[meta["letter"], meta.pop("index").to_bytes(2, "big")] = name[1:].decode()
                found[number, name] = meta
            for name, value in store.scan(b"A", b"Z"):
                letter = name[:1].decode()
                if letter != "M":
                    at = 3 if letter == "K" else 1
                    section = names[letter, name[at : at + 2]]
                    found[number, section, name[:at] + name[at + 2 :]] = value
            found[number, "key groups"] = tuple(handle["key_groups"])
    return found


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_native_state_made_of_it_is_the_one_that_was_saved(
    tmp_path: Path, saved: Path, backend: str
) -> None:
    source = checkpoint_of(saved)
    before = inspect_checkpoint(source).manifest
    target = LocalStorage(tmp_path / "restored")
    target.bind("0" * 32)
    after = restore_canonical(canonical(saved), target, backend)
    assert list(after.operators) == list(before.operators)
    entries = 0
    for uid, acks in before.operators.items():
        wanted, found = stored(source, before, uid), stored(target, after, uid)
        # A store may know of states that only another subtask has entries of.
        assert {name for name in set(found) - set(wanted) if len(name) > 2} == set(), uid
        assert set(wanted) - set(found) == set(), uid
        for name, value in wanted.items():
            if isinstance(value, bytes) and found[name] != value and name[1] != b"M\0chunk":
                # Pickled again: the bytes may differ, the value and its types do not.
                assert repr(readable_value(found[name])) == repr(readable_value(value)), (uid, name)
            elif not isinstance(value, bytes):
                assert found[name] == value, (uid, name)
        entries += len(wanted)
        for one, other in zip(acks, after.operators[uid], strict=True):
            assert (one.subtask, one.watermark, one.idle) == (
                other.subtask,
                other.watermark,
                other.idle,
            )
            assert list(one.operator_states) == list(other.operator_states)
            if one.state is not None:
                assert other.state is not None
                assert other.state["backend"] == backend
    assert entries > 500
    assert after.splits == before.splits
    assert after.offsets == before.offsets


#: Prints what DuckDB and pandas read of a savepoint; neither Millstream nor the program is there.
READ = """
import json, sys
import duckdb, pandas
root = sys.argv[1]
assert not [name for name in sys.modules if name.startswith(("millstream", "tests"))]
file = f"{root}/state/keeps/keyed/%s.parquet"
query = lambda text, name: duckdb.sql(text.replace("$", "'" + file % name + "'")).fetchall()
print(json.dumps({
    "value": query("SELECT key, value FROM $", "value"),
    "items": query("SELECT key, list(value ORDER BY number, position) FROM $ GROUP BY key",
                   "items"),
    "map": query("SELECT key, map_key, value FROM $", "map"),
    "timed": query("SELECT key, map_key, value.f0, epoch_ms(last_access) FROM $", "timed%20map"),
    "types": [str(each) for each in duckdb.read_parquet(file % "timed%20map").types],
    "pandas": pandas.read_parquet(file % "sum").set_index("key")["value"].to_dict(),
    "timers": pandas.read_parquet(f"{root}/state/keeps/timers/event.parquet")["time"].tolist(),
    "positions": pandas.read_parquet(f"{root}/state/source-positions.parquet")[
        "position"].tolist(),
    "windows": query("SELECT DISTINCT time FROM '%s'" % (
        f"{root}/state/tumbling-reduce/internal/windows%2Ealigned.parquet"), ""),
}))
"""


def test_oracle_duckdb_and_pandas_read_it_without_millstream(tmp_path: Path, saved: Path) -> None:
    script = tmp_path / "read.py"
    script.write_text(READ)
    done = subprocess.run(
        [sys.executable, "-P", str(script), str(saved)],
        cwd=tmp_path, env={"PATH": ""}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    found = json.loads(done.stdout)
    manifest = canonical(saved).manifest
    (position,) = [split.position for split in manifest.splits["events"].values()]
    assert found["positions"] == [position]
    read = program.EVENTS[:position]
    keys = {key for key, _, _ in read}
    values = {key: [number for each, number, _ in read if each == key] for key in keys}
    assert dict(found["value"]) == {key: sum(each) for key, each in values.items()}
    assert found["pandas"] == dict(found["value"])
    assert dict(found["items"]) == values
    assert {(key, name): value for key, name, value in found["map"]} == {
        (key, str(number % 4)): number for key in keys for number in values[key]
    }
    assert {(key, name): value for key, name, value, _ in found["timed"]} == {
        (key, number % 3): number for key in keys for number in values[key]
    }
    started = manifest.started
    assert all(abs(each[3] - started) < 600_000 for each in found["timed"])
    assert found["types"][:4] == [
        "VARCHAR",
        "BIGINT",
        "TIMESTAMP",
        "STRUCT(f0 BIGINT, f1 VARCHAR)",
    ]
    watermark = min(ack.watermark for ack in manifest.operators["keeps"])
    asked = {(key, stamp // 50 * 50 + 120) for key, _, stamp in read}
    due = Counter(time for _, time in asked if time > watermark)
    assert Counter(found["timers"]) == due


def test_the_description_lists_every_file_and_what_is_in_it(saved: Path) -> None:
    described = json.loads((saved / DESCRIPTION).read_text())
    files = {
        each.relative_to(saved).as_posix()
        for each in (saved / "state").rglob("*")
        if each.is_file()
    }
    assert set(described["files"]) == files
    kept = {
        each["state"]
        for each in described["files"].values()
        if each.get("operator") == "keeps" and each["kind"] == "keyed"
    }
    assert {"value", "items", "timed map", "\0timers.event", "\0timers.processing"} <= kept


STATES: dict[str, dict[int, list[Any]]] = {
    "numbers": {0: [1, 2], 1: [], 2: [3]},
    "pairs": {0: [("a", 1)], 1: [("b", None)]},
    "of several types": {0: [1, "a", {2}], 1: [None]},
    "none": {0: [], 1: []},
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("kind", [OperatorStateKind.LIST, OperatorStateKind.UNION])
def test_lists_of_operators_come_back(name: str, kind: OperatorStateKind) -> None:
    elements = {subtask: list(map(dumps, own)) for subtask, own in STATES[name].items()}
    layout = OperatorLayout(kind)
    table = layout.table(elements)
    found = layout.elements(table)
    assert {subtask: found.get(subtask, []) for subtask in elements} == elements
    if name == "numbers":
        assert table.column("value").to_pylist() == [1, 2, 3]


def test_broadcast_state_is_there_once_if_it_is_the_same() -> None:
    entries = {"a": 1, "b": {2}, "c": None}
    own = list(map(dumps, entries.items()))
    layout = OperatorLayout(OperatorStateKind.BROADCAST)
    table = layout.table({0: own, 1: own[::-1]})
    assert table.column("key").to_pylist() == ["a", "b", "c"]
    assert table.column("value").to_pylist() == [1, None, None]
    assert layout.elements(table) == {None: own}
    table = layout.table({0: own, 1: own[:2]})
    assert layout.elements(table) == {0: own, 1: own[:2]}


def test_elements_that_are_not_in_order_are_refused() -> None:
    layout = OperatorLayout(OperatorStateKind.LIST)
    table = layout.table({0: list(map(dumps, [1, 2, 3]))})
    with pytest.raises(StateError, match="element 2 of subtask 0"):
        layout.elements(table.take([0, 2, 1]))
