"""Keep what this release writes, for later releases to read: ``python -m tests.keep``.

Writes ``RELEASE.tar.gz`` in ``tests/checkpoint/kept``, one per format in ``kept-savepoints``, and
``RELEASE.json.gz`` in ``tests/runtime/table_operators/kept-state``.  Run it again after a change of
a layout, until the release is out; what a published release wrote is never written again.
"""

from __future__ import annotations

from tests.checkpoint import kept_program
from tests.runtime.table_operators import state_program

from millstream import __version__
from millstream.common import SavepointFormatType

if __name__ == "__main__":
    kept_program.write(kept_program.KEPT / f"{__version__}.tar.gz")
    for kind in SavepointFormatType:
        archive = kept_program.KEPT_SAVEPOINTS / f"{__version__}-{kind.value}.tar.gz"
        kept_program.write_savepoint(archive, kind)
    state_program.write(state_program.KEPT / f"{__version__}.json.gz")
