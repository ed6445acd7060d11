"""A job from numbers to files on S3: ``python file_job.py LOCATION CHECKPOINTS EXECUTION``."""

from __future__ import annotations

import sys
import time

from millstream.common import Configuration, Encoder, Types, WatermarkStrategy
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink

COUNT = 400


class Numbers(NumberSequenceSource):
    """Of which each micro-batch reads few."""

    initial_limit = 50


def slowly(number: int) -> str:
    """Take time, so that there are many checkpoints."""
    time.sleep(0.002)
    return str(number)


def main(location: str, checkpoints: str, execution: str) -> None:
    configuration = Configuration(
        {
            "execution.target": "local",
            "millstream.execution": execution,
            "execution.checkpointing.dir": checkpoints,
            "execution.checkpointing.interval": "50 ms",
            "restart-strategy.type": "none",
            "parallelism.default": "2",
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    numbers = env.from_source(
        Numbers(0, COUNT - 1, splits=2), WatermarkStrategy.no_watermarks(), "numbers"
    )
    sink = FileSink.for_row_format(location, Encoder.simple_string_encoder()).build()
    numbers.map(slowly, Types.STRING()).sink_to(sink)
    env.execute("numbers to files")


if __name__ == "__main__":
    main(*sys.argv[1:])
