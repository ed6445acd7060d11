"""The job of the kill tests of change data capture.

Run as ``python cdc_kill_job.py ENGINE PORT SCHEMA DIRECTORY``; until ``DIRECTORY/stop`` is there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from millstream.common import Configuration
from millstream.connectors.basic.collect import CollectSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.postgres_cdc import PostgresCdcSource
from millstream.functions.watermark_strategy import WatermarkStrategy

if __name__ == "__main__":
    engine, port, schema, given = sys.argv[1:]
    directory = Path(given)
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    configuration.set_string("millstream.execution", engine)
    configuration.set_string("execution.checkpointing.dir", str(directory / "checkpoints"))
    configuration.set_string("execution.checkpointing.interval", "200 ms")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    source = (
        PostgresCdcSource.builder()
        .hostname("127.0.0.1")
        .port(int(port))
        .database("postgres")
        .username("millstream")
        .table_list(f"{schema}.items")
        .slot_name(schema)
        .build()
    )
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "items").uid("items")
    stream.sink_to(CollectSink(directory / "out", fsync=False)).uid("out")
    client = env.execute_async("changes")
    finished = client.get_job_execution_result()
    while not (directory / "stop").exists() and not finished.done():
        time.sleep(0.05)
    if finished.done():
        finished.result()
    client.cancel().result()
