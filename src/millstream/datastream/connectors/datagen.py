"""The data generator of ``connectors/basic/data_generator.py`` under PyFlink's import path."""

from millstream.connectors.basic.data_generator import DataGeneratorSource as DataGeneratorSource
from millstream.connectors.basic.data_generator import GeneratorFunction as GeneratorFunction
from millstream.connectors.basic.data_generator import RateLimiterStrategy as RateLimiterStrategy
