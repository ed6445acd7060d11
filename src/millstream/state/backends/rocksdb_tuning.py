"""Options of RocksDB, and the memory that all its stores in a process share.

Block cache and write buffers of all stores are bounded together, as in Flink: write buffers are
charged to the cache, and so are indexes and filters.  A write buffer manager lets write buffers
come to half as much again before they are flushed, which the formulas of ``shared_memory`` leave
room for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    WriteBufferManager,
)

from millstream.configuration import options

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.configuration.configuration import Configuration


_MEBIBYTE: Final = 1 << 20
_BLOCK_FORMAT: Final = 5
#: In which write buffers grow.  By default an eighth of one: a dozen stores with few writes would
#: take what all of them share.
_ARENA: Final = 256 << 10
_COMPRESSIONS: Final[dict[str, Callable[[], DBCompressionType]]] = {
    "NO_COMPRESSION": DBCompressionType.none,
    "SNAPPY_COMPRESSION": DBCompressionType.snappy,
    "ZLIB_COMPRESSION": DBCompressionType.zlib,
    "BZLIB2_COMPRESSION": DBCompressionType.bz2,
    "LZ4_COMPRESSION": DBCompressionType.lz4,
    "LZ4HC_COMPRESSION": DBCompressionType.lz4hc,
    "ZSTD_COMPRESSION": DBCompressionType.zstd,
}

#: From so many files on level 0 they are compacted.
_COMPACT_FROM: Final = 4
#: Writes are slowed down and stopped at twice and four times as many files on level 0.
MOST_LEVEL_0: Final = 12
#: What makes single compactions small, whatever the size of the state: the first level below
#: level 0 is rewritten as a whole; below it, files are cut so that they overlap few of the next
#: level.  docs/decisions/0010-compaction-between-epochs.md has the figures.
_LEVEL_BASE: Final = 8 * _MEBIBYTE
_TABLE: Final = 4 * _MEBIBYTE
_MOST_COMPACTED: Final = 16 * _MEBIBYTE
#: From this size on RocksDB starts a new MANIFEST, with the files that there are (some 150 bytes
#: for each).  All of it is in each snapshot, and each adds to it: by default up to a gigabyte.
_MANIFEST: Final = _MEBIBYTE >> 3


@dataclass(frozen=True, slots=True)
class RocksDBOptions:
    """What ``state.backend.rocksdb.*`` sets; sizes in bytes."""

    #: Of block cache and write buffers of all stores of the process; None: not bounded together.
    memory: int | None = options.MANAGED_MEMORY.default // 2
    #: The part of ``memory`` for write buffers.
    write_buffer_ratio: float = options.ROCKSDB_WRITE_BUFFER_RATIO.default
    #: Of the block cache of the process, if ``memory`` is None.
    cache_size: int = options.ROCKSDB_CACHE_SIZE.default
    block_size: int = options.ROCKSDB_BLOCK_SIZE.default
    write_buffer_size: int = options.ROCKSDB_WRITE_BUFFER_SIZE.default
    write_buffer_count: int = options.ROCKSDB_WRITE_BUFFER_COUNT.default
    #: Names of Flink's, for the levels from 0 on; the last one is for all further ones.
    compression: tuple[str, ...] = tuple(options.ROCKSDB_COMPRESSION.default)
    #: Bits per key of Bloom filters; 0: none.
    bloom_bits: int = int(options.ROCKSDB_BLOOM_BITS.default)
    open_files: int = options.ROCKSDB_OPEN_FILES.default
    threads: int = options.ROCKSDB_THREADS.default

    @classmethod
    def of(cls, configuration: Configuration) -> RocksDBOptions:
        """Read the options of a job."""
        memory: int | None = configuration.get(options.ROCKSDB_FIXED_MEMORY)
        if not memory:
            is_managed = configuration.get(options.ROCKSDB_MANAGED)
            memory = configuration.get(options.MANAGED_MEMORY) // 2 if is_managed else None
        compression: list[str] = configuration.get(options.ROCKSDB_COMPRESSION)
        bits: float = configuration.get(options.ROCKSDB_BLOOM_BITS)
        uses_filter = configuration.get(options.ROCKSDB_BLOOM_FILTER)
        return cls(
            memory=memory,
            write_buffer_ratio=configuration.get(options.ROCKSDB_WRITE_BUFFER_RATIO),
            cache_size=configuration.get(options.ROCKSDB_CACHE_SIZE),
            block_size=configuration.get(options.ROCKSDB_BLOCK_SIZE),
            write_buffer_size=configuration.get(options.ROCKSDB_WRITE_BUFFER_SIZE),
            write_buffer_count=configuration.get(options.ROCKSDB_WRITE_BUFFER_COUNT),
            compression=tuple(compression),
            bloom_bits=round(bits) if uses_filter else 0,
            open_files=configuration.get(options.ROCKSDB_OPEN_FILES),
            threads=configuration.get(options.ROCKSDB_THREADS),
        )

    def make(self) -> Options:
        """Return options for opening a store."""
        memory = shared_memory(self)
        tables = BlockBasedOptions()
        tables.set_block_cache(memory.cache)
        if self.bloom_bits:
            tables.set_bloom_filter(self.bloom_bits, False)  # noqa: FBT003 - rocksdict's signature
        tables.set_block_size(self.block_size)
        tables.set_format_version(_BLOCK_FORMAT)
        made = Options(raw_mode=True)
        if memory.write_buffers is not None:
            made.set_write_buffer_manager(memory.write_buffers)
            made.set_arena_block_size(_ARENA)
            tables.set_cache_index_and_filter_blocks(True)
            tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
        made.create_if_missing(True)  # noqa: FBT003
        made.set_block_based_table_factory(tables)
        compression = [_COMPRESSIONS[each]() for each in self.compression]
        made.set_compression_type(compression[-1])
        if len(compression) > 1:
            made.set_compression_per_level(compression)
        made.set_write_buffer_size(self.write_buffer_size)
        made.set_max_write_buffer_number(self.write_buffer_count)
        made.set_max_background_jobs(self.threads)
        made.set_max_open_files(self.open_files)
        _set_what_is_fixed(made)
        return made


def _set_what_is_fixed(made: Options) -> None:
    made.set_level_zero_file_num_compaction_trigger(_COMPACT_FROM)
    made.set_max_bytes_for_level_base(_LEVEL_BASE)
    made.set_target_file_size_base(_TABLE)
    made.set_target_file_size_multiplier(2)
    made.set_max_compaction_bytes(_MOST_COMPACTED)
    made.set_level_zero_slowdown_writes_trigger(2 * MOST_LEVEL_0)
    made.set_level_zero_stop_writes_trigger(4 * MOST_LEVEL_0)
    made.set_keep_log_file_num(1)
    made.set_max_log_file_size(_MEBIBYTE)
    made.set_stats_dump_period_sec(0)
    made.set_stats_persist_period_sec(0)
    made.set_max_manifest_file_size(_MANIFEST)
    # A store is opened for each epoch: without statistics of its files (of 20 at most) RocksDB
    # takes it for empty, and everything that goes by the number of keys goes wrong.
    made.set_skip_stats_update_on_db_open(False)


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """What all stores of a process with one set of options share; it outlives them."""

    cache: Cache
    #: None: each store has as many write buffers as it may.
    write_buffers: WriteBufferManager | None

    @property
    def used(self) -> int:
        """Bytes of the block cache, and of write buffers, indexes and filters, which it counts."""
        return self.cache.get_usage()


_shared: Final[dict[tuple[int | None, float, int], SharedMemory]] = {}


def shared_memory(wanted: RocksDBOptions) -> SharedMemory:
    """Return the memory that stores with these options share in this process.

    The formulas are Flink's (``RocksDBMemoryControllerUtils``): a write buffer manager of capacity
    C uses up to 3 C / 2.
    """
    key = (wanted.memory, wanted.write_buffer_ratio, wanted.cache_size)
    found = _shared.get(key)
    if found is None:
        if wanted.memory is None:
            found = SharedMemory(Cache(wanted.cache_size), None)
        else:
            ratio = wanted.write_buffer_ratio
            cache = Cache(int((3 - ratio) * wanted.memory / 3))
            capacity = int(2 * ratio * wanted.memory / 3)
            make = WriteBufferManager.new_write_buffer_manager_with_cache
            found = SharedMemory(cache, make(capacity, False, cache))  # noqa: FBT003 - no stalls
        _shared[key] = found
    return found
