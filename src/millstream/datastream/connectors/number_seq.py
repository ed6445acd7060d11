"""The source of ``connectors/basic/data_generator.py`` under PyFlink's import path."""

from millstream.connectors.basic.data_generator import NumberSequenceSource as NumberSequenceSource
