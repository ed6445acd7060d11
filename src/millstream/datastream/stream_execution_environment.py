"""PyFlink's import path of the environment; read ``datastream/environment.py``."""

from millstream.datastream.environment import (
    StreamExecutionEnvironment as StreamExecutionEnvironment,
)
