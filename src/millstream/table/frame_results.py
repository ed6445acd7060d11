"""Results of tables as DataFrames of pandas and of Spark, and in Arrow.

What it is: methods of ``Table`` that run it and give the rows that are there at the end.
What it is not: the conversion (``table/elements.py``).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from millstream.sql.planner.logical import LogicalNode
    from millstream.table.table_result import TableResult

__all__ = ["FrameResults"]


class FrameResults:
    """What a table gives to programs of pandas and Spark."""

    @property
    @abstractmethod
    def plan(self) -> LogicalNode:
        """What is computed."""

    @property
    @abstractmethod
    def _time_zone(self) -> str:
        """The time zone of the session."""

    @abstractmethod
    def execute(self) -> TableResult:
        """Start a job that collects the rows."""

    def to_pandas(self) -> pd.DataFrame:
        """Run, and give the rows that are there at the end as a DataFrame.

        Numbers keep their width and timestamps their unit, arrays are of numpy and rows dicts.
        """
        from millstream.table.elements import frame_of

        return frame_of(self.execute().collect_batches(), self.plan.row, self._time_zone)

    def to_arrow(self) -> pa.Table:
        """Run, and give the rows that are there at the end as a table of Arrow."""
        from millstream.table.elements import arrow_of

        return arrow_of(self.execute().collect_batches(), self.plan.row)

    def to_spark(self, spark: Any) -> Any:
        """Run, and give the rows that are there at the end as a DataFrame of Spark.

        The rows go through this process.

        Args:
            spark: the SparkSession whose DataFrame it becomes.

        Returns:
            The DataFrame, of which ``createOrReplaceTempView`` makes a table of Spark.

        Raises:
            ProgramError: Spark has no type for a column.
        """
        from millstream.table.elements import spark_frame_of

        return spark_frame_of(self.execute().collect_batches(), self.plan.row, spark)
