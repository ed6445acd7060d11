"""PyFlink's import path of OutputTag; read ``types/output_tag.py``."""

from millstream.types.output_tag import OutputTag as OutputTag
