"""Rows under PyFlink's import path."""

from millstream.types.row import Row as Row
from millstream.types.row import RowKind as RowKind
from millstream.types.types import Types as Types
