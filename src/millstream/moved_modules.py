"""Modules under the names that they had when older checkpoints were written.

What it is: a finder at the end of ``sys.meta_path``, asked only when nobody else has found a module
of this package.  Values in state are pickled with the name of their class's module, so what could
be in a value must be found under its old name for as long as such checkpoints are read.
What it is not: for programs, whose import paths are PyFlink's and stay.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ["MOVED", "install"]

_OPERATORS: Final = "runtime.operators."
#: Old name -> new name, both within the package.
MOVED: Final = {
    "common.output_tag": "types.output_tag",
    "common.row": "types.row",
    "common.tagged_union": "types.tagged_union",
    "runtime.aggregates": "runtime.columnar.aggregates",
    "runtime.evictors": "functions.evictors",
    "runtime.row_aggregates": "runtime.columnar.row_aggregates",
    "runtime.windows": "functions.window",
    _OPERATORS + "merging_windows": "runtime.operators.windows.merging",
    _OPERATORS + "session_sets": "runtime.operators.windows.session_sets",
}


class _MovedFinder(MetaPathFinder, Loader):
    """Gives the module of the new name for the old one."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """A spec for what has moved; None for all else."""
        del path, target
        known = fullname.removeprefix("millstream.") in MOVED
        return ModuleSpec(fullname, self) if known else None

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module."""
        del spec

    def exec_module(self, module: ModuleType) -> None:
        """Fill it: a class is the same object under both names."""
        name = module.__name__.removeprefix("millstream.")
        found = importlib.import_module("millstream." + MOVED[name])
        for each, value in vars(found).items():
            module.__dict__.setdefault(each, value)


def install() -> None:
    """Let imports find moved modules; once per process."""
    if not any(isinstance(finder, _MovedFinder) for finder in sys.meta_path):
        sys.meta_path.append(_MovedFinder())
