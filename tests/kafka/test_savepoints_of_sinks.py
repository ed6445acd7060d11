"""Two jobs from one savepoint write to one topic: each ends its own transactions, and no others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NoReturn

import pytest
from tests.kafka.kafka_job import RECORDS
from tests.kafka.test_older_copies import Job

from millstream.checkpoint.coordinator import Coordinator
from millstream.configuration import options
from millstream.datastream import CheckpointingMode
from millstream.errors import SinkError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.broker import Broker

    from millstream.graph.model import JobGraph


class Fork(Job):
    """Starts from a savepoint where there is one."""

    saved = ""

    def graph(self, prefix: str | None = None) -> JobGraph:
        graph = super().graph(prefix)
        graph.configuration.set_string(options.SAVEPOINT_PATH.key, self.saved)
        return graph


def refuse(*_: object) -> NoReturn:
    message = "the brokers are away"
    raise SinkError(message)


@pytest.mark.usefixtures("own_clients")
@pytest.mark.both_engines
def test_a_fork_leaves_the_transactions_of_the_first_job_alone(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Fork(broker, CheckpointingMode.EXACTLY_ONCE)
    first = job.start(tmp_path / "first")
    request = first.job.savepoints.ask(str(tmp_path / "savepoints"))
    assert first.run_epoch()
    saved = request.result()
    before = {number for _, _, number in job.results()}
    with monkeypatch.context() as broken:
        broken.setattr(Coordinator, "_commit", refuse)
        with pytest.raises(SinkError):
            first.run_epoch()
    first.close_instances()
    first.coordinator.close()
    assert {number for _, _, number in job.results()} == before
    job.saved = saved
    job.start(tmp_path / "fork").run()
    # Where the first job has a transaction open, readers wait for that.
    assert before <= {number for _, _, number in job.results()}
    job.saved = ""
    job.start(tmp_path / "first").run()
    found = Counter(number for _, _, number in job.results())
    assert found == Counter({n: 1 + (n not in before) for n in range(RECORDS)})
