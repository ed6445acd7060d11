"""PyFlink's import path of OutputTag; read ``types/output_tag.py``."""

from __future__ import annotations

from millstream.types.output_tag import OutputTag

__all__ = ["OutputTag"]
