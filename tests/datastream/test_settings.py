"""What a program sets of its job, by PyFlink's methods, and what that sets in its options."""

from __future__ import annotations

import pytest

from millstream.configuration import flink_options, options
from millstream.configuration.configuration import Configuration
from millstream.contracts.serialization import Encoder
from millstream.datastream import (
    CheckpointConfig,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    MemorySize,
    PredefinedOptions,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)
from millstream.errors import ConfigurationError
from millstream.types.time import Duration


@pytest.fixture(name="env")
def new_environment(monkeypatch: pytest.MonkeyPatch) -> StreamExecutionEnvironment:
    monkeypatch.setattr(flink_options, "_said", set())
    return StreamExecutionEnvironment.get_execution_environment(Configuration())


@pytest.fixture(name="config")
def checkpoint_config(env: StreamExecutionEnvironment) -> CheckpointConfig:
    return env.get_checkpoint_config()


def test_tolerable_failures(env: StreamExecutionEnvironment, config: CheckpointConfig) -> None:
    assert config.get_tolerable_checkpoint_failure_number() == 0
    assert config.is_fail_on_checkpointing_errors()
    config.set_tolerable_checkpoint_failure_number(3)
    assert env.get_configuration().get(options.TOLERABLE_FAILURES) == 3
    assert not config.is_fail_on_checkpointing_errors()
    config.set_fail_on_checkpointing_errors(False)
    assert config.get_tolerable_checkpoint_failure_number() == 2**31 - 1
    config.set_fail_on_checkpointing_errors(True)
    assert config.get_tolerable_checkpoint_failure_number() == 0
    with pytest.raises(ConfigurationError, match="must be at least 0"):
        config.set_tolerable_checkpoint_failure_number(-1)


def test_retention(config: CheckpointConfig) -> None:
    none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    assert not config.is_externalized_checkpoints_enabled()
    assert config.get_externalized_checkpoint_retention() is none
    for mode in ExternalizedCheckpointRetention:
        config.set_externalized_checkpoint_retention(mode)
        assert config.get_externalized_checkpoint_retention() is mode
        assert config.is_externalized_checkpoints_enabled() is (mode is not none)


def test_storage_objects_choose_the_directory(
    env: StreamExecutionEnvironment, config: CheckpointConfig
) -> None:
    assert isinstance(config.get_checkpoint_storage(), JobManagerCheckpointStorage)
    config.set_checkpoint_storage(FileSystemCheckpointStorage("/mnt/checkpoints"))
    assert env.get_configuration().get(options.CHECKPOINTS_DIRECTORY) == "/mnt/checkpoints"
    found = config.get_checkpoint_storage()
    assert isinstance(found, FileSystemCheckpointStorage)
    assert found.get_checkpoint_path() == config.get_checkpoint_storage_dir() == "/mnt/checkpoints"
    assert (found.get_min_file_size_threshold(), found.get_write_buffer_size()) == (20480, 20480)
    assert found.get_savepoint_path() is None
    # The other one is temporary, whatever was set before.
    config.set_checkpoint_storage(JobManagerCheckpointStorage())
    assert not config.get_checkpoint_storage_dir()
    assert JobManagerCheckpointStorage().get_max_state_size() == 5 * 1024 * 1024
    config.set_checkpoint_storage(JobManagerCheckpointStorage("/mnt/metadata", 100))
    assert config.get_checkpoint_storage_dir() == "/mnt/metadata"
    with pytest.raises(ConfigurationError, match="needs the path"):
        FileSystemCheckpointStorage("")


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("file:///mnt/x/", "file:///mnt/x"),
        ("/mnt/x/", "/mnt/x"),
        ("/", "/"),
        ("file:///", "file:///"),
    ],
)
def test_paths_have_no_slash_at_their_end(given: str, path: str) -> None:
    assert FileSystemCheckpointStorage(given).get_checkpoint_path() == path


@pytest.mark.parametrize(
    ("given", "path"), [("file:///fast/", "/fast"), ("/fast/", "/fast"), ("/", "/")]
)
def test_working_state_lies_at_the_path_of_a_uri(given: str, path: str) -> None:
    backend = EmbeddedRocksDBStateBackend()
    backend.set_db_storage_paths(given)
    assert backend.get_db_storage_paths() == [path]


def test_state_backend_objects_choose_the_options(env: StreamExecutionEnvironment) -> None:
    configuration = env.get_configuration()
    assert isinstance(env.get_state_backend(), EmbeddedRocksDBStateBackend)
    assert isinstance(
        env.set_state_backend(HashMapStateBackend()).get_state_backend(), HashMapStateBackend
    )
    assert configuration.get(options.STATE_BACKEND) == "hashmap"
    backend = EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=True)
    backend.set_db_storage_paths("/fast", "/slow")
    env.set_state_backend(backend)
    assert configuration.get(options.STATE_BACKEND) == "rocksdb"
    assert configuration.get(options.LOCAL_DIRECTORY) == "/fast"
    found = env.get_state_backend()
    assert isinstance(found, EmbeddedRocksDBStateBackend)
    assert found.get_db_storage_paths() == ["/fast"]
    assert found.is_incremental_checkpoints_enabled()


def test_options_of_rocksdb_are_kept_and_said_to_have_no_effect(
    env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    del env
    backend = EmbeddedRocksDBStateBackend(False)
    backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
    backend.set_options("com.example.Factory")
    backend.set_number_of_transfer_threads(2)
    assert backend.get_predefined_options() is PredefinedOptions.FLASH_SSD_OPTIMIZED
    assert backend.get_options() == "com.example.Factory"
    assert backend.get_number_of_transfer_threads() == 2
    assert [record.getMessage().split(" has no effect")[0] for record in caplog.records] == [
        "EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=False)",
        "set_predefined_options()",
        "set_options()",
        "set_number_of_transfer_threads()",
    ]
    with pytest.raises(ConfigurationError, match="cannot be 0 threads"):
        backend.set_number_of_transfer_threads(0)
    with pytest.raises(ConfigurationError, match="must be True, False or None"):
        EmbeddedRocksDBStateBackend("yes")  # type: ignore[arg-type]


def test_what_has_no_effect_is_kept_and_says_so_once(
    env: StreamExecutionEnvironment, config: CheckpointConfig, caplog: pytest.LogCaptureFixture
) -> None:
    config.enable_unaligned_checkpoints().enable_unaligned_checkpoints()
    config.set_force_unaligned_checkpoints()
    config.set_aligned_checkpoint_timeout(Duration.of_seconds(3))
    assert env.is_unaligned_checkpoints_enabled()
    assert env.is_force_unaligned_checkpoints()
    assert config.get_alignment_timeout() == Duration.of_millis(3000)
    assert not config.disable_unaligned_checkpoints().is_unaligned_checkpoints_enabled()
    assert env.get_buffer_timeout() == 100
    assert env.set_buffer_timeout(7).get_buffer_timeout() == 7
    assert env.set_buffer_timeout(-1).get_buffer_timeout() == -1
    assert env.set_buffer_timeout(0).get_buffer_timeout() == 0
    assert env.is_changelog_state_backend_enabled() is None
    assert env.enable_changelog_state_backend(True).is_changelog_state_backend_enabled()
    assert env.get_default_savepoint_directory() is None
    env.set_default_savepoint_directory("/savepoints")
    assert env.get_default_savepoint_directory() == "/savepoints"
    assert env.is_chaining_of_operators_with_different_max_parallelism_enabled()
    said = [record.getMessage().split(" has no effect")[0] for record in caplog.records]
    assert said == [
        "execution.checkpointing.unaligned.enabled",
        "execution.checkpointing.unaligned.forced",
        "execution.checkpointing.aligned-checkpoint-timeout",
        "execution.buffer-timeout.interval",
        "execution.buffer-timeout.enabled",
        "state.changelog.enabled",
    ]
    with pytest.raises(ConfigurationError, match="must be -1 or more"):
        env.set_buffer_timeout(-2)


def test_options_without_effect_say_so_by_whatever_way_they_are_set(
    env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"execution.checkpointing.unaligned": "true", "state.savepoints.dir": ""}
    env.configure(Configuration(given)).configure(Configuration(given))
    (said,) = caplog.messages
    assert said == (
        "execution.checkpointing.unaligned has no effect, nothing is in flight between two "
        "micro-batches; it has with millstream.execution: pipelined"
    )


def test_default_parallelism_of_this_machine(env: StreamExecutionEnvironment) -> None:
    assert env.get_default_local_parallelism() == env.get_parallelism()
    assert env.set_default_local_parallelism(3).get_parallelism() == 3


def test_slot_sharing_groups(env: StreamExecutionEnvironment) -> None:
    def group(heap: int) -> SlotSharingGroup:
        builder = SlotSharingGroup.builder("heavy").set_cpu_cores(1.5).set_task_heap_memory_mb(heap)
        builder.set_managed_memory_mb(64).set_task_off_heap_memory_mb(8)
        return builder.set_external_resource("gpu", 1).build()

    heavy = group(512)
    assert heavy.get_name() == "heavy"
    assert heavy.get_cpu_cores() == 1.5
    assert heavy.get_task_heap_memory() == MemorySize.of_mebi_bytes(512)
    assert heavy.get_task_off_heap_memory() == MemorySize(8 << 20)
    assert heavy.get_managed_memory() == MemorySize(64 << 20)
    assert heavy.get_external_resources() == {"gpu": 1.0}
    assert (heavy == group(512), hash(heavy) == hash(group(512))) == (True, True)
    assert heavy != group(256)
    env.register_slot_sharing_group(heavy).register_slot_sharing_group(group(512))
    with pytest.raises(ConfigurationError, match="'heavy' was registered with other resources"):
        env.register_slot_sharing_group(group(256))
    light = SlotSharingGroup.builder("light").build()
    assert (light.get_cpu_cores(), light.get_task_heap_memory()) == (None, None)
    with pytest.raises(ConfigurationError, match=r"set_cpu_cores\(\) and set_task_heap_memory\(\)"):
        SlotSharingGroup.builder("half").set_managed_memory_mb(1).build()
    with pytest.raises(ConfigurationError, match="must be positive, not 0"):
        SlotSharingGroup.builder("none").set_cpu_cores(0)


def test_memory_sizes_compare_and_have_units() -> None:
    size = MemorySize.of_mebi_bytes(3 * 1024)
    assert size.get_bytes() == 3 << 30
    assert (size.get_kibi_bytes(), size.get_mebi_bytes()) == (3 << 20, 3072)
    assert (size.get_gibi_bytes(), size.get_tebi_bytes()) == (3, 0)
    assert str(size) == "3 gb"
    assert str(MemorySize(1000)) == "1000 bytes"
    assert MemorySize(1) < MemorySize(2) <= MemorySize(2) < size
    assert len({MemorySize(2), MemorySize(2)}) == 1
    with pytest.raises(ConfigurationError, match="cannot be negative"):
        MemorySize(-1)


def test_an_environment_that_is_closed_has_its_settings(env: StreamExecutionEnvironment) -> None:
    stream = env.set_parallelism(3).from_collection([1])
    assert stream.get_execution_config() == env.get_config()
    assert stream.get_execution_config().get_parallelism() == 3
    env.close()
    assert env.get_parallelism() == 3


def test_names_of_connectors() -> None:
    from millstream.datastream import connectors
    from millstream.datastream.connectors import kafka

    assert connectors.KafkaSource is kafka.KafkaSource
    assert connectors.KafkaSink is kafka.KafkaSink
    sink = connectors.FileSink
    builder = sink.for_row_format("out", Encoder.simple_string_encoder())
    assert isinstance(builder, sink.RowFormatBuilder)
    assert isinstance(builder.disable_compact(), sink.BaseBuilder)
    config = connectors.OutputFileConfig.OutputFileConfigBuilder().with_part_prefix("p").build()
    assert config.get_part_prefix() == "p"
