"""Lengths and points of time under PyFlink's import path."""

from millstream.types.time import Duration as Duration
from millstream.types.time import Instant as Instant
from millstream.types.time import Time as Time
