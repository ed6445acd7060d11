"""Tables of DataFrames of pandas and of Spark, and of Arrow.

What it is: methods of ``TableEnvironment``.
What it is not: the conversion (``table/elements.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import ProgramError
from millstream.table.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.sql.statements.session import Session


class FrameSources:
    """What programs of pandas and Spark bring to tables."""

    _session: Session

    @property
    def session(self) -> Session:
        """The session behind the environment."""
        return self._session

    def from_pandas(self, pdf: Any, schema: Any = None, splits_num: int = 1) -> Table:
        """A table of a pandas DataFrame.

        Args:
            pdf: the DataFrame.
            schema: names, or ``DataTypes.ROW([...])``.
            splits_num: taken; there is one split.
        """
        del splits_num
        from millstream.table.elements import plan_of_frame

        return Table(self, plan_of_frame(pdf, schema))

    def from_arrow(self, data: pa.Table | pa.RecordBatch, schema: Any = None) -> Table:
        """A table of rows that Arrow holds.

        Args:
            data: the rows.
            schema: names, or ``DataTypes.ROW([...])``.

        Raises:
            ProgramError: it is no table and no batch of Arrow.
        """
        from millstream.table.elements import plan_of_arrow

        return Table(self, plan_of_arrow(data, schema))

    def from_spark(self, dataframe: Any, schema: Any = None) -> Table:
        """A table of a DataFrame of Spark.

        Args:
            dataframe: one whose rows are there; they go through this process.
            schema: names, or ``DataTypes.ROW([...])``.

        Raises:
            ProgramError: it is no DataFrame, or a streaming one.
        """
        from millstream.table.elements import plan_of_spark

        if getattr(dataframe, "isStreaming", False):
            message = (
                "from_spark() of tables takes a DataFrame whose rows are there; read a streaming "
                "one as a stream, StreamExecutionEnvironment.from_spark(), and make a table of it "
                "by StreamTableEnvironment.from_data_stream()"
            )
            raise ProgramError(message)
        return Table(self, plan_of_spark(dataframe, schema))
