"""The program of docs/how-to/kafka.md does what the page says."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.connectors.kafka import producers
from millstream.datastream.connectors.kafka import KafkaOffsetsInitializer
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from tests.kafka.broker import Broker

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "kafka.md"


def test_program(broker: Broker, tmp_path: Path) -> None:
    read, written = broker.topic(name="orders"), broker.topic(name="totals")
    orders = [{"customer": "a", "amount": 1}, {"customer": "b", "amount": 5}]
    orders.append({"customer": "a", "amount": 2})
    broker.send(read, [json.dumps(order).encode() for order in orders])
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name, value in (
        ("localhost:9092", broker.servers),
        ('set_topics("orders")', f'set_topics("{read}").set_bounded(END)'),
        ('set_topic("totals")', f'set_topic("{written}")'),
        ('prefix("totals")', f'prefix("{written}")'),
        ('env.execute("totals")', 'graph = env.get_job_graph("totals")'),
    ):
        assert name in block
        block = block.replace(name, value)
    module: Any = types.ModuleType("docs_kafka")
    module.END = KafkaOffsetsInitializer.latest()
    sys.modules[module.__name__] = module
    exec(compile(block, str(PAGE), "exec"), module.__dict__)
    MiniCluster(module.graph, tmp_path).run()
    producers.discard_producers()
    del sys.modules[module.__name__]
    totals = [json.loads(record.value) for record in broker.read(written)]
    assert {"customer": "a", "amount": 3} in totals
    assert totals[-1] in ({"customer": "a", "amount": 3}, {"customer": "b", "amount": 5})
    assert len(totals) == 3
