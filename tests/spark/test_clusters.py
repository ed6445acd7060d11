"""Both engines on executors that are processes of their own, of which one is killed half way.

Kafka in and out, exactly-once: every event is counted once, and the counts of a key are 1, 2, 3...
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.standalone import HOME, standalone_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kafka.broker import Broker

    Eventually = Callable[[Callable[[], bool], str], None]

pytestmark = pytest.mark.spark

JOB = Path(__file__).parent / "cluster_job.py"
ROOT = Path(__file__).parents[2]
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
#: Of each of two partitions.
RECORDS = 400
KEYS = 7


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a standalone master with two workers."""
    directory = tmp_path_factory.mktemp("standalone")
    with standalone_cluster(directory, str(ROOT / "src")) as url:
        yield url


def send(broker: Broker, topic: str, numbers: range) -> None:
    for partition in (0, 1):
        events = [{"id": i, "key": f"key-{i % KEYS}"} for i in numbers if i % 2 == partition]
        broker.send(topic, [json.dumps(each).encode() for each in events], partition=partition)


def run(
    broker: Broker, directory: Path, master: str, execution: str, eventually: Eventually
) -> None:
    """Run the job; half of the events come when those before are counted."""
    topics = broker.topic(partitions=2, name="events"), broker.topic(partitions=2, name="results")
    send(broker, topics[0], range(RECORDS))
    arguments = [master, execution, broker.servers, *topics, str(directory)]
    (directory / "records").write_text(str(RECORDS))
    log = directory / "log"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, str(JOB), *arguments],
            env={**os.environ, "PYTHONPATH": path},
            cwd=directory,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:

        def half_done() -> bool:
            assert process.poll() is None, log.read_text()
            return len(broker.read(topics[1])) == RECORDS

        eventually(half_done, "the first half")
        assert not (directory / "killed").exists()
        send(broker, topics[0], range(RECORDS, 2 * RECORDS))
        code = process.wait(300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert code == 0, log.read_text()
    assert (directory / "killed").exists()
    require_each_once(broker, topics[1])


def require_each_once(broker: Broker, topic: str) -> None:
    rows = [json.loads(record.value) for record in broker.read(topic)]
    assert sorted(row["id"] for row in rows) == list(range(2 * RECORDS))
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row["key"]] += 1
        assert row["n"] == counts[row["key"]]
        assert row["key"] == f"key-{row['id'] % KEYS}"


@pytest.fixture
def _no_work_left() -> Iterator[None]:
    """``local-cluster`` keeps the logs of its executors in Spark's home."""
    before = set((HOME / "work").glob("*"))
    yield
    for path in set((HOME / "work").glob("*")) - before:
        shutil.rmtree(path, ignore_errors=True)


@pytest.mark.soak
def test_epochs_on_a_standalone_cluster(
    broker: Broker, tmp_path: Path, standalone: str, eventually: Eventually
) -> None:
    run(broker, tmp_path, standalone, "epochs", eventually)


@pytest.mark.soak
@pytest.mark.usefixtures("_no_work_left")
def test_epochs_on_a_local_cluster(broker: Broker, tmp_path: Path, eventually: Eventually) -> None:
    run(broker, tmp_path, LOCAL_CLUSTER, "epochs", eventually)


def test_slots_on_a_standalone_cluster(
    broker: Broker, tmp_path: Path, standalone: str, eventually: Eventually
) -> None:
    run(broker, tmp_path, standalone, "pipelined", eventually)


@pytest.mark.soak
@pytest.mark.usefixtures("_no_work_left")
def test_slots_on_a_local_cluster(broker: Broker, tmp_path: Path, eventually: Eventually) -> None:
    run(broker, tmp_path, LOCAL_CLUSTER, "pipelined", eventually)
