"""State of keys that are used once and expire: ``python -m bench.short_lived_keys [--keys N]``.

Epochs of new keys as a task runs them (open the store, update, flush, snapshot, close), on
RocksDB, with a time to live of ten epochs.  Without clean-up the state grows with each of them,
with it the curve is flat from the tenth on.  Prints keys so far, live entries, size of the local
store, and CPU seconds per epoch.  The table is in docs/concepts/state-types.md.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Types
from millstream.common.time import Time
from millstream.datastream.state import StateTtlConfig, ValueStateDescriptor
from millstream.state.backend import open_store
from millstream.state.keyed import KeyedState

if TYPE_CHECKING:
    from millstream.contracts.key_value_store import StateHandle


_MAX_PARALLELISM: Final = 128
_ALL: Final = (0, _MAX_PARALLELISM)
_EPOCHS: Final = 100
_LIVES: Final = 10
#: Milliseconds that each epoch takes, by the clock of the state.
_EPOCH: Final = 60_000


def _keyed(clean_up: str) -> tuple[KeyedState, ValueStateDescriptor]:
    descriptor = ValueStateDescriptor("last", Types.TUPLE([Types.LONG(), Types.STRING()]))
    builder = StateTtlConfig.new_builder(Time.milliseconds(_LIVES * _EPOCH))
    if clean_up == "none":
        builder = builder.disable_cleanup_in_background()
    if clean_up == "full snapshot":
        builder = builder.cleanup_full_snapshot()
    descriptor.enable_time_to_live(builder.build())
    return KeyedState(_MAX_PARALLELISM, _ALL), descriptor


def _run(root: Path, keys: int, clean_up: str) -> None:
    storage = LocalStorage(root / "checkpoint", fsync=False)
    handles: list[StateHandle] = []
    keyed, descriptor = _keyed(clean_up)
    last = keyed.get_state(descriptor)
    per_epoch = keys // _EPOCHS
    for epoch in range(_EPOCHS):
        begin, name = time.process_time(), uuid.uuid4().hex
        place = ("rocksdb", storage, "op", 0, _ALL, handles, name, root / "local")
        store = open_store(*place, fsync=False)
        keyed.begin_epoch(store, epoch * _EPOCH)
        first = epoch * per_epoch
        for start in range(first, first + per_epoch, 1_000):
            batch: list[object] = list(range(start, min(start + 1_000, first + per_epoch)))
            keyed.prefetch(batch)
            for key in batch:
                keyed.set_current_key(key)
                last.value()
                last.update((epoch, f"session of {key}"))
        keyed.drop_expired()
        keyed.flush()
        handles = [store.snapshot()]
        spent = time.process_time() - begin
        if (epoch + 1) % _LIVES == 0:
            live = sum(1 for _ in store.scan(b"K", b"L"))
            size = sum(each["size"] for each in handles[0]["files"])
            figures = (f"{first + per_epoch:,}", f"{live:,}", f"{size / 2**20:.0f}", f"{spent:.2f}")
            print(f"| {clean_up} | " + " | ".join(figures) + " |", flush=True)
        store.close()


def main() -> None:
    """Measure with and without clean-up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    arguments = parser.parse_args()
    print("| clean-up | keys so far | entries | MiB of state | CPU s per checkpoint |")
    print("|---|---|---|---|---|")
    for clean_up in ("none", "background", "full snapshot"):
        root = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
        try:
            _run(root, arguments.keys, clean_up)
        finally:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
