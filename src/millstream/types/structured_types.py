"""Structured types: ``STRUCTURED<'module.Class', name STRING>``, rows that are objects of a class.

The class tells types with the same fields apart.  Python gets objects of the class if it can be
imported and is a dataclass with these fields, and named rows otherwise.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from dataclasses import MISSING, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from millstream.errors import ProgramError
from millstream.types.logical_types import LogicalType, RowType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.types.logical_types import RowField


_NAME: Final = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)*")


@dataclass(frozen=True, init=False, repr=False)
class StructuredType(RowType):
    """A row that is an object of a class."""

    class_name: str

    def __init__(
        self,
        fields: Sequence[RowField] | None = None,
        nullable: bool = True,  # noqa: FBT001, FBT002 - as of a row
        *,
        class_name: str = "",
    ) -> None:
        super().__init__(fields, nullable)
        self._set(class_name=class_name)

    def _text(self, *, summary: bool) -> str:
        fields = super()._text(summary=summary).removeprefix("ROW<")
        quoted = self.class_name.replace("'", "''")
        return f"STRUCTURED<'{quoted}', {fields}"


def is_class_name(name: str) -> bool:
    """Return whether a text may name a class: identifiers with dots between them."""
    return _NAME.fullmatch(name) is not None


@lru_cache(maxsize=1000)
def python_class(type_: StructuredType) -> type | None:
    """The dataclass whose objects values are in Python; None: they are rows.

    Raises:
        ProgramError: its module is there, and fails when it is imported.
    """
    module, _, name = type_.class_name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name, None) if module else None
    except ImportError:
        return None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        message = f"the module of class {type_.class_name} cannot be imported: {reason}"
        raise ProgramError(message) from error
    if not isinstance(found, type) or not dataclasses.is_dataclass(found):
        return None
    fields = [each for each in dataclasses.fields(found) if each.init]
    needed = {
        each.name for each in fields if each.default is MISSING and each.default_factory is MISSING
    }
    fits = needed <= set(type_.names) <= {each.name for each in fields}
    return found if fits else None


def has_class(type_: LogicalType) -> bool:
    """Return whether objects of a Python class are in values of a type."""
    if isinstance(type_, StructuredType) and python_class(type_) is not None:
        return True
    return any(map(has_class, type_.children))
