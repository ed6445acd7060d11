"""Options under PyFlink's import path."""

from millstream.configuration.option import ConfigOption as ConfigOption
from millstream.configuration.option import ConfigOptions as ConfigOptions
