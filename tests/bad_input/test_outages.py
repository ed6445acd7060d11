"""A database server that dies in the middle of an epoch, and comes back.

The crash points are used to get there: instead of killing the process they stop the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.bad_input.jobs import PER_EPOCH, ROWS, run, sink_graph, source_graph, submit
from tests.databases.server import PostgresServer, execute
from tests.databases.targets import TARGETS

from millstream.connectors.basic.collect import read_collected
from millstream.connectors.postgres.source import PostgresSource
from millstream.errors import SinkError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Disturb = Callable[[str, Callable[[], None]], None]

KEYS = sorted(row.key for row in ROWS)
FIRST = sorted(row.key for row in ROWS[:PER_EPOCH])


@pytest.fixture(scope="module")
def mortal() -> Iterator[PostgresServer]:
    """A server that no other test needs."""
    started = PostgresServer()
    yield started
    started.stop()


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("kind", "point", "says"),
    [
        (
            "postgres-two-phase",
            "prepared.prepare.before",
            "sink 'results' .* checkpoint 1, subtask",
        ),
        ("postgres-two-phase", "task.ack.before", "sink 'results' .* checkpoint 1, subtask"),
        (
            "postgres-two-phase",
            "manifest.publish.after",
            "results-sink could not commit checkpoint 1",
        ),
        ("postgres-commit-table", "sink.prepare.before", "sink 'results' .* checkpoint 1, subtask"),
        (
            "postgres-commit-table",
            "manifest.publish.after",
            "results-sink could not commit checkpoint",
        ),
        ("postgres-upsert", "upsert.commit.before", "sink 'results' .* checkpoint 1, subtask"),
    ],
)
def test_the_server_of_a_sink_dies(
    kind: str,
    point: str,
    says: str,
    mortal: PostgresServer,
    disturb: Disturb,
    tmp_path: Path,
) -> None:
    target = TARGETS[kind](mortal.new_schema())
    target.create()
    parallelism = 1 if kind == "postgres-upsert" else 2

    def go(epochs: int = 100) -> None:
        graph = sink_graph(target.sink(), parallelism=parallelism)
        run(graph, tmp_path / "checkpoints", epochs)

    def read() -> list[str]:
        return sorted(key for (key,) in target.read("SELECT key FROM results"))

    submit(sink_graph(target.sink()))
    go(epochs=1)
    assert read() == FIRST
    disturb(point, mortal.crash)
    with pytest.raises(SinkError, match=says) as caught:
        go()
    assert f"127.0.0.1:{mortal.port}" in str(caught.value)
    with pytest.raises(SinkError, match=f"cannot connect to .*127.0.0.1:{mortal.port}.*Check"):
        submit(sink_graph(target.sink()))
    mortal.start(16)
    assert read() == FIRST, "nothing of the epoch is visible, what was before is"
    go()
    assert read() == KEYS
    assert list(target.leftovers()) == []


def test_the_server_of_a_source_dies(
    mortal: PostgresServer, disturb: Disturb, tmp_path: Path
) -> None:
    database = mortal.new_schema()
    execute(database, "CREATE TABLE rows AS SELECT generate_series(0, 11) AS i")

    def source() -> PostgresSource:
        return PostgresSource(database, "SELECT i FROM rows", key="i", splits=1)

    def go(epochs: int = 100) -> None:
        run(source_graph(source(), tmp_path / "out"), tmp_path / "checkpoints", epochs)

    def read() -> list[object]:
        return sorted(row.i for row in read_collected(tmp_path / "out"))  # type: ignore[attr-defined]

    go(epochs=1)
    first = read()
    assert first == [0, 1, 2, 3]
    disturb("epoch.start.before", mortal.crash)
    with pytest.raises(SourceError, match=rf"source 'Source: rows'.*127\.0\.0\.1:{mortal.port}"):
        go()
    mortal.start(16)
    assert read() == first
    go()
    assert read() == list(range(12))
