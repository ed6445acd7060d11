"""Packages that give names of other modules to programs: which are public, and which load late."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from millstream.not_offered import refuse_name

if TYPE_CHECKING:
    from collections.abc import Mapping


def complete(package: str, late: Mapping[str, str] | None = None) -> None:
    """Set ``__all__`` and ``__getattr__`` of a package to the names that it imports.

    Its modules are not among them: ``from millstream.common import *`` must not hide ``time``.

    Args:
        package: its name.
        late: modules -> names, separated by blanks, that are imported when a program asks for
            them, since few programs do or an extra must be installed.
    """
    module = sys.modules[package]
    homes = {name: home for home, names in (late or {}).items() for name in names.split()}

    def find(name: str) -> object:
        if name not in homes:
            refuse_name(package, name)
        found: object = getattr(import_module(homes[name]), name)
        return found

    def is_public(name: str) -> bool:
        home = str(getattr(vars(module)[name], "__module__", ""))
        return not name.startswith("_") and home.startswith("millstream.")

    names = sorted({*filter(is_public, vars(module)), *homes})
    vars(module).update(__all__=names, __getattr__=find)
