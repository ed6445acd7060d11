"""Event time or processing time, under PyFlink's import path."""

from millstream.functions.functions import TimeDomain as TimeDomain
