"""``millstream transactions`` against a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafka import KafkaProducer
from millstream.cli.main import main

if TYPE_CHECKING:
    from tests.kafka.broker import Broker


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
    assert f"{topic}-one  producer " in shown
    assert f"{topic}-0\n2 open transactions begin with '{topic}'\n" in shown

    assert main(["transactions", "abort", f"{topic}-one", *where]) == 0
    assert main(["transactions", "commit", f"{topic}-two", *where]) == 0
    assert capsys.readouterr().out == f"{topic}-one: aborted\n{topic}-two: committed\n"
    assert [record.value for record in broker.read(topic)] == [b"two"]
    assert main(["transactions", "commit", f"{topic}-two", *where]) == 1
    assert f"{topic}-two has no open transaction: it is Complete" in capsys.readouterr().err
    assert main(["transactions", "list", "--prefix", topic, *where, "-X", "client.id=x"]) == 0
    assert capsys.readouterr().out == f"0 open transactions begin with '{topic}'\n"
    with pytest.raises(SystemExit):
        main(["transactions", "abort", *where])
