"""After what asynchronous functions are tried again, under PyFlink's import path."""

from __future__ import annotations

from millstream.functions.async_functions import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]
