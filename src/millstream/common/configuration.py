"""Configuration under PyFlink's import path."""

from millstream.configuration.configuration import CONFIGURATION_VARIABLE as CONFIGURATION_VARIABLE
from millstream.configuration.configuration import Configuration as Configuration
