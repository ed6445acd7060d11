"""Asking sources and sinks, at submit, whether they can be used.

What it is: one call for a whole job, before anything is written.  Each error names the source or
sink as the user knows it: its name and where in the program it was made.

What it is not: a check of the program itself (``graph/translate.py``).

Read next: ``contracts/source.py``, ``contracts/sink.py``.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from millstream.errors import ConfigurationError, SinkError, SourceError, TypeMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.graph.model import JobGraph, StreamNode

__all__ = ["connector_label", "error_context", "validate_connectors"]


def validate_connectors(graph: JobGraph) -> None:
    """Check every source and sink of a job.

    Raises:
        SourceError, SinkError, ConfigurationError, TypeMismatchError: one cannot be used; names it.
    """
    for node in graph.nodes.values():
        with error_context(connector_label(node)):
            if node.source is not None:
                node.source.validate()
            if node.sink is not None:
                node.sink.validate()
                for edge in graph.inputs(node.id):
                    node.sink.validate_input(edge.type_info)
                node.sink.validate_configuration(graph.configuration)
                node.sink.validate_parallelism(node.parallelism)


def connector_label(node: StreamNode) -> str:
    """The name of a source or sink, and where in the program it was made; its uid if it has one."""
    uid = f", uid {node.uid}" if node.has_own_uid else ""
    return f"{node.kind} {node.name!r} ({node.location}{uid})"


@contextlib.contextmanager
def error_context(label: str) -> Iterator[None]:
    """Let errors of a source or sink begin with ``connector_label``."""
    try:
        yield
    except (SourceError, SinkError, ConfigurationError, TypeMismatchError) as error:
        message = f"{label}: {error}"
        raise type(error)(message) from error
