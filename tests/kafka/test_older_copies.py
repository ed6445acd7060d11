"""Checkpoint directories that were put back from a copy older than the topic, in whole jobs."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from kafka.errors import GroupAuthorizationFailedError, KafkaTimeoutError
from tests.kafka.kafka_job import PER_EPOCH, RECORDS, environment

from kafka import KafkaAdminClient
from millstream.connectors.kafka import producers
from millstream.datastream import CheckpointingMode
from millstream.errors import SinkError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.broker import Broker

    from millstream.graph.model import JobGraph


pytestmark = [pytest.mark.usefixtures("own_clients"), pytest.mark.both_engines(every=4)]


class Job:
    """Kafka to Kafka, with producers of its own in every run."""

    def __init__(self, broker: Broker, mode: CheckpointingMode) -> None:
        self.broker = broker
        self.read, self.written = broker.topic(2), broker.topic(2)
        self.mode = mode
        for partition in range(2):
            events = [{"id": n, "key": "abc"[n % 3]} for n in range(partition, RECORDS, 2)]
            broker.send(self.read, [json.dumps(each).encode() for each in events], partition)

    def graph(self, prefix: str | None = None) -> JobGraph:
        env = environment(self.broker.servers, self.read, self.written)
        env.enable_checkpointing(1, self.mode)
        graph = env.get_job_graph("kafka to kafka")
        for node in graph.nodes.values():
            if prefix is not None and node.sink is not None:
                node.sink.prefix = prefix  # type: ignore[attr-defined]
        return graph

    def start(self, directory: Path, prefix: str | None = None) -> MiniCluster:
        producers.discard_producers()  # each run has workers of its own
        return MiniCluster(self.graph(prefix), directory, limits=itertools.repeat(PER_EPOCH))

    def results(self) -> list[Any]:
        rows = [json.loads(record.value) for record in self.broker.read(self.written)]
        return sorted((row["key"], row["n"], row["id"]) for row in rows)


@pytest.fixture
def exact(broker: Broker) -> Job:
    return Job(broker, CheckpointingMode.EXACTLY_ONCE)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(("before", "behind"), [(0, 1), (1, 1), (1, 3)])
def test_producers_that_did_not_go_on(exact: Job, tmp_path: Path, before: int, behind: int) -> None:
    for _ in range(before):
        cluster = exact.start(tmp_path / "now")
        assert cluster.run_epoch()
        cluster.coordinator.close()
    exact.start(tmp_path / "now").coordinator.close()
    shutil.copytree(tmp_path / "now", tmp_path / "copy")
    cluster = exact.start(tmp_path / "now")
    for _ in range(behind):
        assert cluster.run_epoch()
    held = exact.results()
    with pytest.raises(
        SinkError, match=rf"checkpoint {before + behind - 1}: .*older than the topic"
    ):
        exact.start(tmp_path / "copy").run()
    assert exact.results() == held
    # The original goes on, whatever was tried with the copy.
    exact.start(tmp_path / "now").run()
    assert len(exact.results()) == RECORDS


def test_a_copy_that_is_to_write_again(exact: Job, tmp_path: Path) -> None:
    exact.start(tmp_path / "now").coordinator.close()
    shutil.copytree(tmp_path / "now", tmp_path / "copy")
    exact.start(tmp_path / "now").run()
    exact.start(tmp_path / "copy", prefix="again").run()
    assert len(exact.results()) == 2 * RECORDS


def test_brokers_that_answer_later(
    exact: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact.start(tmp_path / "now").coordinator.close()
    shutil.copytree(tmp_path / "now", tmp_path / "copy")
    assert exact.start(tmp_path / "now").run_epoch()
    listed, silent = KafkaAdminClient.list_groups, iter([True, True])  # a second time it is asked

    def answer(client: KafkaAdminClient) -> Any:
        if next(silent, False):
            raise KafkaTimeoutError
        return listed(client)

    monkeypatch.setattr(KafkaAdminClient, "list_groups", answer)
    held = exact.results()
    with pytest.raises(SinkError, match=r"sink results: nothing is .*older than the topic"):
        exact.start(tmp_path / "copy").run()
    assert exact.results() == held


def test_brokers_that_let_nobody_list_groups(
    exact: Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_arguments: object) -> None:
        raise GroupAuthorizationFailedError

    monkeypatch.setattr(KafkaAdminClient, "list_groups", refuse)
    with caplog.at_level(logging.WARNING, "millstream.kafka"):
        exact.start(tmp_path).run()
    assert "cannot be found out: " in caplog.text
    assert len(exact.results()) == RECORDS


@pytest.mark.epochs_only("what is written again may be in another order, with other counts")
def test_output_of_an_at_least_once_run_that_no_manifest_names(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(broker, CheckpointingMode.AT_LEAST_ONCE)
    cluster = job.start(tmp_path)
    assert cluster.run_epoch()

    def die(*_manifest: object) -> int:
        message = "died"
        raise OSError(message)

    monkeypatch.setattr(cluster.coordinator._log, "publish", die)
    with pytest.raises(OSError, match="died"):
        cluster.run_epoch()
    job.mode = CheckpointingMode.EXACTLY_ONCE
    job.start(tmp_path).run()
    assert len(job.results()) == RECORDS + PER_EPOCH
    assert len(set(job.results())) == RECORDS
