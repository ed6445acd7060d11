"""Functions that are costly per call: asynchronous enrichment, a pandas function, model inference.

Each call waits for a fixed time, as for a service or a device, so rates are those of batch sizes
and not of the machine.  Run by ``bench/run.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import Outcome

from millstream.common import Configuration, Time, Types, WatermarkStrategy
from millstream.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment
from millstream.datastream.connectors import DiscardingSink
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.table import DataTypes, StreamTableEnvironment
from millstream.table.udf import udf

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.datastream import DataStream

#: Seconds of a call: of a service, a pandas function, a model.
ASYNC_SECONDS = 0.05
PANDAS_SECONDS = 0.04
MODEL_SECONDS = 0.03
CAPACITY = 200


class Enrich(AsyncFunction[int, int]):
    """Asks a service for each record."""

    async def async_invoke(self, value: int) -> list[int]:
        """Wait for the answer."""
        await asyncio.sleep(ASYNC_SECONDS)
        return [value + 1]


def enriched(numbers: DataStream) -> DataStream:
    """Asynchronous enrichment."""
    return AsyncDataStream.unordered_wait(
        numbers, Enrich(), Time.seconds(60), CAPACITY, Types.LONG()
    )


def infer(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A model that takes as long for one record as for many."""
    time.sleep(MODEL_SECONDS)
    return batch


def inferred(numbers: DataStream) -> DataStream:
    """Model inference by ``map_batches``."""
    return numbers.map_batches(infer, Types.LONG())


@udf(result_type=DataTypes.BIGINT(), func_type="pandas")
def next_number(column: Any) -> Any:
    """A pandas function that is costly per call."""
    time.sleep(PANDAS_SECONDS)
    return column + 1


def by_pandas(numbers: DataStream) -> DataStream:
    """A pandas function in SQL."""
    tables = StreamTableEnvironment.create(numbers.get_execution_environment())
    tables.create_temporary_function("next_number", next_number)
    tables.create_temporary_view("numbers", tables.from_data_stream(numbers))
    return tables.to_data_stream(tables.sql_query("SELECT next_number(f0) AS n FROM numbers"))


FUNCTIONS = {"async": enriched, "pandas": by_pandas, "model": inferred}


def run(function: str, execution: str, events: int, scratch: Path) -> float:
    """Run a job to its end; returns its seconds."""
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    configuration.set_string("millstream.execution", execution)
    configuration.set_string("execution.checkpointing.dir", str(scratch / "checkpoint"))
    configuration.set_string("millstream.local-directory", str(scratch / "state"))
    configuration.set_string("millstream.progress", "off")
    configuration.set_string("restart-strategy.type", "none")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    source = NumberSequenceSource(0, events - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    FUNCTIONS[function](numbers).sink_to(DiscardingSink())
    began = time.monotonic()
    env.execute(function)
    return time.monotonic() - began


def main() -> None:
    """Run one function and save the outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--function", choices=sorted(FUNCTIONS), required=True)
    parser.add_argument("--execution", choices=["epochs", "pipelined"], required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    arguments, _ = parser.parse_known_args()
    seconds = run(
        arguments.function, arguments.execution, arguments.events, arguments.scratch / "job"
    )
    outcome = Outcome(rows_per_second=arguments.events / seconds, rows=arguments.events)
    outcome.save(arguments.report)


if __name__ == "__main__":
    main()
