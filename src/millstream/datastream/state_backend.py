"""State backends, under PyFlink's import path."""

from millstream.configuration.state_backends import (
    EmbeddedRocksDBStateBackend as EmbeddedRocksDBStateBackend,
)
from millstream.configuration.state_backends import HashMapStateBackend as HashMapStateBackend
from millstream.configuration.state_backends import PredefinedOptions as PredefinedOptions
from millstream.configuration.state_backends import StateBackend as StateBackend
