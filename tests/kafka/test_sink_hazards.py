"""What may befall the Kafka sink's producers and transactions, beyond a plain kill."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.kafka.broker import running_broker
from tests.kafka.test_sink import commit, context, exactly_once, prepare, texts, values

from millstream.connectors.kafka import producers
from millstream.connectors.kafka.transactions import TransactionControl
from millstream.contracts.sink import CommitRequest
from millstream.datastream.connectors.kafka import DeliveryGuarantee
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.broker import Broker


@pytest.fixture(autouse=True)
def no_producers() -> Iterator[None]:
    yield
    producers.discard_producers()


def test_an_older_copy_of_the_checkpoint_commits_nothing(broker: Broker) -> None:
    topic = broker.topic()
    made = exactly_once(broker, topic).build()
    old = prepare(made, context(1), "one")
    commit(made, old, 1)
    commit(made, prepare(made, context(2), "two"), 2)
    unpublished = prepare(made, context(3), "unpublished")
    assert unpublished[0]["transactional_id"] == old[0]["transactional_id"]  # type: ignore[index]
    # The directory is put back as it was when epoch 1 was the last.
    with pytest.raises(SinkError, match="checkpoint directory is older than the topic"):
        commit(made, old, 1, retried=True)
    assert values(broker, topic) == ["one", "two"]


def test_a_lost_transaction_does_not_hold_up_the_others(broker: Broker) -> None:
    topic = broker.topic()
    made = exactly_once(broker, topic).build()
    (lost,) = prepare(made, context(1, "a"), "x")
    control = TransactionControl({"bootstrap.servers": broker.servers})
    control.fence(lost["transactional_id"], 60_000)  # type: ignore[index]
    control.close()
    others = prepare(made, context(1, "b"), "y") + prepare(made, context(1, "c"), "z")
    with pytest.raises(SinkError, match="output of checkpoint 1 is lost"):
        commit(made, [lost, *others], 1)
    assert sorted(values(broker, topic)) == ["y", "z"]


def test_a_refused_commit_is_not_called_lost(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    made = exactly_once(broker, topic).build()
    prepared = prepare(made, context(1), "x")
    with monkeypatch.context() as patched:
        # TRANSACTIONAL_ID_AUTHORIZATION_FAILED, say.
        patched.setattr(TransactionControl, "commit", lambda *_arguments, **_names: False)
        with pytest.raises(SinkError, match=r"refuse to end transaction .* still open"):
            commit(made, prepared, 1)
    commit(made, prepared, 1, retried=True)
    assert values(broker, topic) == ["x"]


@pytest.mark.parametrize(
    ("name", "limit"),
    [("queue.buffering.max.messages", "100"), ("queue.buffering.max.kbytes", "64")],
)
def test_more_than_the_queue_of_the_client_holds(broker: Broker, name: str, limit: str) -> None:
    topic = broker.topic()
    made = exactly_once(broker, topic).set_property(name, limit).build()
    expected = [str(number) * 100 for number in range(1000, 3000)]
    commit(made, prepare(made, context(1), *expected), 1)
    assert values(broker, topic) == expected


def test_a_producer_that_failed_for_good_is_not_used_again(broker: Broker) -> None:
    topic = broker.topic()
    builder = exactly_once(broker, topic)
    made = builder.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).build()
    prepare(made, context(1), "a")
    fail_for_good(producers.plain_producer(made.properties).client)
    with pytest.raises(SinkError, match="by a test"):
        prepare(made, context(2), "b")
    prepare(made, context(2, "again"), "b")
    assert values(broker, topic) == ["a", "b"]


def fail_for_good(client: Any) -> None:
    """Put a producer into the state that it never leaves, by librdkafka's own means for that."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    path = next(line.split()[-1] for line in maps if "librdkafka" in line)
    # The handle is the first member of the Python object.
    handle = ctypes.c_void_p.from_address(id(client) + object.__basicsize__)
    fenced = -144
    ctypes.CDLL(path).rd_kafka_test_fatal_error(handle, fenced, b"by a test")


def test_a_broker_that_is_silent_at_the_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_broker(tmp_path) as own:
        topic = own.topic()
        made = exactly_once(own, topic).set_property("max.block.ms", "2000").build()
        with monkeypatch.context() as patched:  # as long as the broker answers
            patched.setattr(producers.PooledProducer, "patience", 60.0)
            writer = made.create_writer(context(1))
            writer.write(texts("x"))
            held = writer._producer  # type: ignore[attr-defined]
            held.flush()
        os.killpg(own.pid, signal.SIGSTOP)
        while "T (stopped)" not in Path(f"/proc/{own.pid}/status").read_text():
            time.sleep(0.001)
        began = time.monotonic()
        try:
            with pytest.raises(SinkError, match="checkpoint 1 cannot be prepared"):
                writer.prepare_commit()
            writer.abort()
        finally:
            os.killpg(own.pid, signal.SIGCONT)
        assert time.monotonic() - began < 45  # and not the minute that is given otherwise
        assert values(own, topic) == []


def test_brokers_that_forgot_what_was_committed_in_order(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    made = exactly_once(broker, topic).build()
    prepared = prepare(made, context(1), "x")
    commit(made, prepared, 1)
    # After offsets.retention.minutes without a commit.
    monkeypatch.setattr(TransactionControl, "newest_marker", lambda *_arguments: (-1, None))
    with pytest.raises(SinkError, match="output of checkpoint 1 is lost"):
        commit(made, prepared, 1, retried=True)
    committer = made.create_committer()
    assert committer is not None
    committer.commit([CommitRequest(prepared[0], 1, retried=True, confirmed=True)])
    committer.close()
    assert values(broker, topic) == ["x"]
