"""Options of the sinks of tables, and how parallel their jobs are.

What it is: definitions that ``configuration/options.py`` gives on under their names.
What it is not: where they are read (``sql/statements/session.py``).
"""

from __future__ import annotations

from typing import Final

from millstream.configuration.option import ConfigOption
from millstream.configuration.parsing import parse_integer, parse_string, parse_uppercase

__all__ = ["NOT_NULL_ENFORCER", "TABLE_PARALLELISM", "UPSERT_MATERIALIZE"]

NOT_NULL_ENFORCER: Final = ConfigOption(
    "table.exec.sink.not-null-enforcer",
    parse_string,
    "ERROR",
    "what happens to NULL that is written into a column NOT NULL",
    choices=("ERROR", "DROP"),
)
UPSERT_MATERIALIZE: Final = ConfigOption(
    "table.exec.sink.upsert-materialize",
    parse_uppercase,
    "AUTO",
    "whether rows are kept by the key of a sink: where its key is not that of the query; always; "
    "never",
    choices=("AUTO", "FORCE", "NONE"),
)
TABLE_PARALLELISM: Final = ConfigOption(
    "table.exec.resource.default-parallelism",
    parse_integer,
    -1,
    "parallelism of jobs of tables, before parallelism.default; -1: as that says",
    minimum=-1,
)
