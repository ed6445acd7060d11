"""PyFlink's import path of OutputTag; read ``common/output_tag.py``."""

from __future__ import annotations

from millstream.common.output_tag import OutputTag

__all__ = ["OutputTag"]
