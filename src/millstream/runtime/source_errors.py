"""Where an error of a source was: the source, its place in the program, the split.

What it is not: for errors of operators, which are under their own names; only a source's own step
goes into ``reading``.

Read next: ``runtime/split_reader.py``.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError, SourceError
from millstream.graph.validation import error_context
from millstream.runtime.user_code import cause_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["reading"]


@contextlib.contextmanager
def reading(label: str, split_id: str) -> Iterator[None]:
    """Name the source and the split in what a step of reading raises.

    Args:
        label: of the source, as ``connector_label`` makes it.
        split_id: what is read.

    Raises:
        MillstreamError: the source's own, with its label; SourceError for any other exception.
    """
    try:
        with error_context(label):
            yield
    except MillstreamError:
        raise
    except Exception as error:
        message = f"{label} failed while reading split {split_id!r}: {cause_of(error)}"
        raise SourceError(message) from error
