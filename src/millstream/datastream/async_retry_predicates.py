"""After what asynchronous functions are tried again, under PyFlink's import path."""

from millstream.functions.async_functions import empty_result_predicate as empty_result_predicate
from millstream.functions.async_functions import (
    exception_type_predicate as exception_type_predicate,
)
from millstream.functions.async_functions import has_exception_predicate as has_exception_predicate
