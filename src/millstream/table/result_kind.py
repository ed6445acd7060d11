"""ResultKind, under PyFlink's path."""

from millstream.table.table_result import ResultKind as ResultKind
