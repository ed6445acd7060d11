"""``millstream transactions`` against a real broker."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.forked import run_forked
from tests.kafka.kafka_job import RECORDS
from tests.kafka.test_sink import exactly_once
from tests.matrix.test_other_modes import dying_at

from kafka import KafkaProducer
from millstream.cli.main import main
from millstream.common import Types
from millstream.connectors.kafka import producers
from millstream.connectors.kafka.transactions import TransactionControl
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import SinkError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from tests.kafka.broker import Broker

JOB = Path(__file__).parent / "kafka_job.py"


def without_hanging(shown: str) -> str:
    """Return what is listed before hanging transactions; other tests leave some on the broker."""
    return shown.partition("hanging: ")[0]


def test_list_commit_and_abort(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    topic = broker.topic()
    for name in ("one", "two"):
        producer = KafkaProducer(
            bootstrap_servers=broker.servers,
            transactional_id=f"{topic}-{name}",
            enable_idempotence=True,
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, name.encode())
        producer.flush()
    where = ["--bootstrap-servers", broker.servers]
    assert main(["transactions", "list", "--prefix", topic, *where]) == 0
    shown = capsys.readouterr().out
    assert f"{topic}-one\n  Ongoing for " in shown
    assert f", {topic}-0\n  not of a Millstream job\n  whether a manifest names it is" in shown
    assert f"\n2 open transactions begin with '{topic}'\n" in shown

    assert main(["transactions", "commit", f"{topic}-two", *where]) == 1
    assert f"{topic}-two is not committed: whether a manifest" in capsys.readouterr().err
    assert main(["transactions", "abort", f"{topic}-one", "--force", *where]) == 0
    assert main(["transactions", "commit", f"{topic}-two", "--force", *where]) == 0
    assert capsys.readouterr().out == f"{topic}-one: aborted\n{topic}-two: committed\n"
    assert [record.value for record in broker.read(topic)] == [b"two"]
    assert main(["transactions", "commit", f"{topic}-two", *where]) == 1
    assert f"{topic}-two has no open transaction: it is Empty" in capsys.readouterr().err
    assert main(["transactions", "list", "--prefix", topic, *where, "-X", "client.id=x"]) == 0
    shown = without_hanging(capsys.readouterr().out)
    assert shown == f"0 open transactions begin with '{topic}'\n"
    with pytest.raises(SystemExit):
        main(["transactions", "abort", *where])


@pytest.mark.extended
@pytest.mark.usefixtures("forks")
def test_the_checkpoint_directory_decides(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = broker.topic(name="events"), broker.topic(partitions=2, name="results")
    events = [{"id": i, "key": f"key-{i * i % 13}"} for i in range(RECORDS)]
    broker.send(topics[0], [json.dumps(event).encode() for event in events])
    checkpoints = tmp_path / "checkpoints"
    options = ["--bootstrap-servers", broker.servers, "--checkpoint-dir", str(checkpoints)]

    def run(crash: str = "") -> str:
        """Run the job, up to a crash; what is listed then."""
        directory = tmp_path / (crash or "end")
        arguments = [broker.servers, *topics, str(checkpoints)]
        ended = run_forked(JOB, arguments, directory=directory, crash=crash, deadline=300)
        assert ended.killed == bool(crash), ended.output
        assert main(["transactions", "list", "--prefix", topics[1], *options]) == 0
        return without_hanging(capsys.readouterr().out)

    def end(action: str, transactional_id: str, *more: str) -> tuple[int, str]:
        code = main(["transactions", action, transactional_id, *options, *more])
        output = capsys.readouterr()
        return code, output.out + output.err

    # Two transactions are written, no epoch is published.
    shown = run("kafka.marker.before:2").splitlines()
    assert shown[-1] == f"2 open transactions begin with '{topics[1]}'"
    orphan = shown[0]
    assert shown[1].startswith("  Ongoing for ")
    assert shown[2].startswith("  job 'kafka to kafka' (")
    assert shown[2].endswith("), sink results, run 1")
    assert shown[3] == (
        "  no manifest names it: to be aborted, unless that run still lives and is about to"
        " publish it"
    )
    code, text = end("commit", orphan)
    assert code == 1
    assert f"{orphan} is not committed: no manifest names it" in text
    assert end("abort", orphan) == (0, f"{orphan}: aborted\n")

    # An epoch is published and half committed.
    shown = run("kafka.commit.before:2").splitlines()
    assert shown[-1] == f"1 open transactions begin with '{topics[1]}'"
    named = shown[0]
    assert shown[3] == "  the manifest of checkpoint 0 names it: to be committed"
    before = len(broker.read(topics[1]))
    code, text = end("abort", named)
    assert code == 1
    assert f"{named} is not aborted: the manifest of checkpoint 0 names it: to be committed" in text
    assert end("commit", named) == (0, f"{named}: committed\n")
    assert len(broker.read(topics[1])) > before
    # It is the job's own afterwards: it goes on as if it had committed that itself.
    assert run() == f"0 open transactions begin with '{topics[1]}'\n"
    rows = [json.loads(record.value) for record in broker.read(topics[1])]
    assert sorted(row["id"] for row in rows) == list(range(RECORDS))


@pytest.mark.usefixtures("forks")
def test_a_later_transaction_of_a_named_producer_is_not_named(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = broker.topic(name="events"), broker.topic(partitions=2, name="results")
    broker.send(topics[0], [json.dumps({"id": i, "key": str(i)}).encode() for i in range(RECORDS)])
    checkpoints = tmp_path / "checkpoints"
    # Each epoch has two transactions: the third marker is of epoch 1.
    crash = "kafka.marker.after:4"
    arguments = [broker.servers, *topics, str(checkpoints)]
    ended = run_forked(JOB, arguments, directory=tmp_path / "run", crash=crash, deadline=300)
    assert ended.killed, ended.output
    options = ["--bootstrap-servers", broker.servers, "--checkpoint-dir", str(checkpoints)]
    assert main(["transactions", "list", "--prefix", topics[1], *options]) == 0
    shown = capsys.readouterr().out
    assert "  begun after what checkpoint 0 names was committed: to be aborted" in shown
    control = TransactionControl({"bootstrap.servers": broker.servers})
    opened = control.open_transactions(topics[1])
    control.close()
    assert opened
    assert main(["transactions", "commit", *opened, *options]) == 1
    assert "is not committed: begun after what checkpoint 0" in capsys.readouterr().err
    assert main(["transactions", "abort", *opened, *options]) == 0
    assert main(["transactions", "list", "--checkpoint-dir", str(tmp_path), *options[:2]]) == 1
    assert "is no checkpoint directory that a job has used" in capsys.readouterr().err


def test_a_sink_without_a_uid_is_called_by_its_name(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = broker.topic()
    checkpoints = tmp_path / "checkpoints"

    def run(epochs: int = 9) -> MiniCluster:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        stream = env.from_collection(["a", "b", "c", "d"], Types.STRING())
        stream.sink_to(exactly_once(broker, topic).build()).name("totals")
        cluster = MiniCluster(env.get_job_graph("names"), checkpoints, limits=itertools.repeat(1))
        cluster.run(epochs)
        return cluster

    run(1).close_instances()
    old = tmp_path / "old"
    shutil.copytree(checkpoints, old)
    shutil.rmtree(old / "local", ignore_errors=True)
    with dying_at("epoch.acks.after"):
        run()
    where = ["--bootstrap-servers", broker.servers, "--checkpoint-dir", str(checkpoints)]
    assert main(["transactions", "list", "--prefix", topic, *where]) == 0
    shown = capsys.readouterr().out
    assert "  job 'names' (" in shown
    assert "), sink totals, run " in shown

    run().close_instances()
    shutil.rmtree(checkpoints)
    shutil.copytree(old, checkpoints)
    with pytest.raises(
        SinkError, match=r"^sink totals: checkpoint 0 is the last in the checkpoint dir"
    ):
        run()
    producers.discard_producers()
