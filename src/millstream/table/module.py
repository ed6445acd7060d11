"""Modules under PyFlink's path."""

from __future__ import annotations

from millstream.sql.catalog.modules import ModuleEntry as ModuleEntry


class Module:
    """A module by its name alone, for ``load_module``: there is ``core``, which is loaded."""
