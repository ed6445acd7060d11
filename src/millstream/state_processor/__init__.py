"""Read and write the state of savepoints and checkpoints as data, without running a job.

The names are those of Flink's State Processor API.  Read next: ``reader.py``, ``writer.py``.
"""

from millstream.state_processor.reader import SavepointReader as SavepointReader
from millstream.state_processor.reader import StateInfo as StateInfo
from millstream.state_processor.reader import StateTable as StateTable
from millstream.state_processor.writer import SavepointWriter as SavepointWriter

__all__ = ["SavepointReader", "SavepointWriter", "StateInfo", "StateTable"]
