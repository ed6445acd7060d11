"""Options of RocksDB: what they change, and that all stores of a process share their memory."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from millstream.checkpoint import LocalStorage
from millstream.common import Configuration
from millstream.configuration import options
from millstream.errors import ConfigurationError
from millstream.state.backend import open_store
from millstream.state.backends.rocksdb_tuning import RocksDBOptions, shared_memory

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.key_value_store import KeyValueStore

MEBIBYTE = 1 << 20
PREFIX = "state.backend.rocksdb."


def configured(**settings: Any) -> Configuration:
    """Options by what stands behind the prefix, with two underscores for a dot."""
    made = Configuration()
    for name, value in settings.items():
        key = PREFIX + name.replace("__", ".").replace("_", "-")
        made.set_string(key, str(value))
    return made


def opened(directory: Path, configuration: Configuration, uid: str = "u") -> KeyValueStore:
    storage = LocalStorage(directory / "checkpoint", fsync=False)
    return open_store(
        "rocksdb", storage, uid, 0, (0, 128), [], "a", directory / "l", configuration=configuration
    )


def test_the_defaults_are_those_of_an_empty_configuration() -> None:
    found = RocksDBOptions.of(Configuration())
    assert found == RocksDBOptions()
    assert found.memory == 256 * MEBIBYTE


def test_memory_is_a_half_of_what_is_managed_or_fixed_or_a_cache_alone() -> None:
    managed = Configuration()
    managed.set(options.MANAGED_MEMORY, 100 * MEBIBYTE)
    assert RocksDBOptions.of(managed).memory == 50 * MEBIBYTE
    fixed = RocksDBOptions.of(configured(memory__fixed_per_slot="12mb"))
    assert fixed.memory == 12 * MEBIBYTE
    alone = RocksDBOptions.of(configured(memory__managed="false", block__cache_size="3mb"))
    assert (alone.memory, alone.cache_size) == (None, 3 * MEBIBYTE)
    assert shared_memory(alone).write_buffers is None
    buffers = shared_memory(fixed).write_buffers
    assert buffers is not None
    assert buffers.get_buffer_size() == 4 * MEBIBYTE  # Flink's formula: 2 / 3 * 0.5 * 12


def test_all_stores_of_a_process_stay_within_one_budget(tmp_path: Path) -> None:
    """Eight stores are given 6 MiB each, of which 16 MiB may be in memory for all."""
    configuration = configured(memory__fixed_per_slot="16mb")
    memory = shared_memory(RocksDBOptions.of(configuration))
    assert memory is shared_memory(RocksDBOptions.of(configuration))
    chance = random.Random(8)
    stores = [opened(tmp_path / str(n), configuration, f"u{n}") for n in range(8)]
    most = 0
    for _ in range(24):
        for store in stores:
            store.write([(b"K" + chance.randbytes(12), chance.randbytes(250)) for _ in range(1000)])
            store.get_many([b"K" + chance.randbytes(12) for _ in range(20)])
            most = max(most, memory.used)
    for store in stores:
        assert sum(1 for _ in store.scan(b"K", b"L")) == 24_000
        most = max(most, memory.used)
        store.close()
    # As in Flink writes do not wait: what is being flushed comes on top for a moment.
    assert 4 * MEBIBYTE < most < 24 * MEBIBYTE


@pytest.mark.parametrize("name", ["NO_COMPRESSION", "LZ4_COMPRESSION", "ZSTD_COMPRESSION"])
def test_compression_of_files(tmp_path: Path, name: str) -> None:
    store = opened(tmp_path, configured(compression__per__level=name))
    store.write([(b"K%06d" % n, b"the same words again and again " * 3) for n in range(20_000)])
    (handle,) = [store.snapshot()]
    store.close()
    size = sum(file["size"] for file in handle["files"])
    assert (size > 1_500_000) == (name == "NO_COMPRESSION")


def test_options_are_passed_on(tmp_path: Path) -> None:
    configuration = configured(
        compression__per__level="NO_COMPRESSION;LZ4_COMPRESSION",
        use_bloom_filter="false",
        writebuffer__size="1mb",
        writebuffer__count=3,
        block__blocksize="16kb",
        files__open=-1,
        thread__num=3,
        memory__write_buffer_ratio=0.25,
    )
    assert RocksDBOptions.of(configuration) == RocksDBOptions(
        write_buffer_ratio=0.25,
        block_size=16 << 10,
        write_buffer_size=MEBIBYTE,
        write_buffer_count=3,
        compression=("NO_COMPRESSION", "LZ4_COMPRESSION"),
        bloom_bits=0,
        open_files=-1,
        threads=3,
    )
    store = opened(tmp_path, configuration)
    store.write([(b"K%d" % n, b"v") for n in range(1000)])
    assert store.get(b"K7") == b"v"
    store.close()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must be a list of NO_COMPRESSION, SNAPPY"):
        RocksDBOptions.of(configured(compression__per__level="FAST"))
    with pytest.raises(ConfigurationError, match="must be a number from 0 to 1"):
        RocksDBOptions.of(configured(memory__write_buffer_ratio=3))
