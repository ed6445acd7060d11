"""Two jobs from one savepoint write to one table: each ends its own transactions, and no others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NoReturn

import pytest
from tests.databases.server import execute, prepared_in_schema
from tests.integration.job_runs import SplitsSource, environment

from millstream.checkpoint.coordinator import Coordinator
from millstream.common import Types
from millstream.configuration import options
from millstream.datastream.connectors.postgres import PostgresSink
from millstream.errors import SinkError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

ROW = Types.ROW_NAMED(["id"], [Types.LONG()])
COUNT = 20


def start(database: str, directory: Path, name: str, saved: str = "") -> MiniCluster:
    env = environment(2, **{options.SAVEPOINT_PATH.key: saved})
    source = SplitsSource([[(n,) for n in range(first, COUNT, 2)] for first in (0, 1)], ROW)
    rows = env.from_source(source, None, "rows").uid("rows")
    rows.sink_to(PostgresSink.two_phase(database, "results", type_info=ROW)).uid("results")
    return MiniCluster(env.get_job_graph(name), directory / name, limits=[4] * COUNT)


def refuse(*_: object) -> NoReturn:
    message = "the database is away"
    raise SinkError(message)


@pytest.mark.both_engines
def test_a_fork_leaves_the_transactions_of_the_first_job_alone(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(database, "CREATE TABLE results (id BIGINT)")
    first = start(database, tmp_path, "first")
    request = first.job.savepoints.ask(str(tmp_path))
    assert first.run_epoch()
    saved = request.result()
    before = {number for (number,) in execute(database, "SELECT id FROM results")}
    with monkeypatch.context() as broken:
        broken.setattr(Coordinator, "_commit", refuse)
        with pytest.raises(SinkError):
            first.run_epoch()
    first.close_instances()
    first.coordinator.close()
    pending = set(prepared_in_schema(database))
    assert pending
    fork = start(database, tmp_path, "fork", saved)
    fork.run()
    fork.coordinator.close()
    assert set(prepared_in_schema(database)) == pending
    again = start(database, tmp_path, "first")
    again.run()
    again.coordinator.close()
    assert prepared_in_schema(database) == []
    found = Counter(number for (number,) in execute(database, "SELECT id FROM results"))
    # Both jobs have read what comes after the savepoint.
    assert found == Counter({number: 1 + (number not in before) for number in range(COUNT)})
