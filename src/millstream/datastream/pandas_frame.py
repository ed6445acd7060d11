"""Records as a pandas DataFrame: ``execute_and_collect().to_pandas()``.

The columns are those of the stream's type or, of an untyped stream, the fields of its records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.files.file_writers import named_values
from millstream.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from millstream.types.types import TypeInformation


def frame_of(records: Sequence[object], type_info: TypeInformation | None) -> pd.DataFrame:
    """The records as a DataFrame.

    Args:
        records: in order.
        type_info: their type; None or one without columns: the fields are found in the records.

    Raises:
        ProgramError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        message = "to_pandas() needs pandas: pip install pandas"
        raise ProgramError(message) from error
    if type_info is None or type_info.arrow_schema is None:
        return pd.DataFrame.from_records([named_values(record) for record in records])
    frame: pd.DataFrame = type_info.to_arrow(records).to_pandas()
    return frame
