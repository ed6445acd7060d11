"""Flink's options that Millstream does not apply: those refused, and those without effect, and why.

An option of Flink's takes effect (it is in ``configuration/options.py``), or is refused where it
would change results or recovery (``_REFUSED``), or is logged once as having no effect
(``_WITHOUT_EFFECT``).  ``flink_options.tsv`` lists them all; ``tests/options`` checks that each is
in one of the three, and writes ``docs/reference/options.md``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from millstream.configuration.option import (
    parse_boolean,
    parse_duration,
    parse_float,
    parse_list,
    parse_lowercase,
    parse_map,
    parse_memory,
    parse_string,
)
from millstream.configuration.options import ALL_OPTIONS
from millstream.configuration.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_LIST: Final = "flink_options.tsv"
_PARSERS: Final[dict[str, Callable[[object], object]]] = {
    "boolean": parse_boolean,
    "int": parse_float,
    "long": parse_float,
    "float": parse_float,
    "double": parse_float,
    "string": parse_string,
    "duration": parse_duration,
    "memory": parse_memory,
    "map": parse_map,
    "list": parse_list,
}


@dataclass(frozen=True, slots=True)
class FlinkOption:
    """An option of Flink's."""

    key: str
    #: ``boolean``, ``duration`` and so on, or the names of its values with ``|`` between them.
    type: str
    #: As text; empty if there is none.
    default: str
    aliases: tuple[str, ...]

    def is_default(self, value: object) -> bool:
        """Return whether a value means the same as the default."""
        parse = _PARSERS.get(self.type, parse_lowercase)
        try:
            return parse(value) == parse(self.default)
        except ValueError:
            return parse_string(value).strip() == self.default


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an option is refused, and with which values it is not."""

    #: In lower case; empty text where the option must not be set.
    taken: tuple[str, ...]
    #: What holds here and what to do, for the error.
    instead: str

    def takes(self, value: object) -> bool:
        """Return whether the option may have this value."""
        return parse_lowercase(value) in self.taken


_WHOLE_PLANS: Final = "plans hold their tables as a whole"
_LATE_ROWS: Final = "late rows are dropped"
#: The first value of each is that of an option that is not set.
_REFUSED: Final[dict[str, Refusal]] = {
    "execution.state-recovery.without-channel-state.checkpoint-id": Refusal(
        ("-1",), "records in flight are a part of the checkpoint; leave the option out"
    ),
    "execution.program-config.enabled": Refusal(
        ("true",), "settings of the program always count; take them out of the program"
    ),
    "fs.default-scheme": Refusal(
        ("",), "paths without a scheme are on this machine; write the scheme into each path"
    ),
    "table.sql-dialect": Refusal(("default",), "statements are in Flink's default dialect"),
    "table.catalog-store.kind": Refusal(
        ("generic_in_memory",),
        "catalogs end with the session; create them at its start, with CREATE CATALOG",
    ),
    "table.secret-store.kind": Refusal(
        ("generic_in_memory",), "there are no connections with secrets; leave the option out"
    ),
    "table.column-expansion-strategy": Refusal(
        ("",), "SELECT * gives all columns; name those that are wanted"
    ),
    "table.dynamic-table-options.enabled": Refusal(
        ("true",), "hints OPTIONS always count; leave them out of the statements"
    ),
    "table.exec.async-lookup.key-ordered-enabled": Refusal(
        ("false",),
        "set table.exec.async-lookup.output-mode to ORDERED, which keeps the order of all rows",
    ),
    "table.exec.sink.keyed-shuffle": Refusal(
        ("auto", "none"), "rows of one key stay in order; leave the option out"
    ),
    "table.exec.sink.nested-constraint-enforcer": Refusal(
        ("ignore",), "constraints are enforced on columns alone; check nested fields in the query"
    ),
    "table.exec.sink.rowtime-inserter": Refusal(
        ("enabled",), "records have the time of their row; leave the option out"
    ),
    "table.exec.sort.default-limit": Refusal(("-1",), "write the LIMIT into the statements"),
    "table.exec.emit.early-fire.enabled": Refusal(("false",), "windows are emitted when they end"),
    "table.exec.emit.late-fire.enabled": Refusal(("false",), _LATE_ROWS),
    "table.exec.emit.allow-lateness": Refusal(("", "0", "0 s", "0 ms"), _LATE_ROWS),
    "table.exec.deduplicate.insert-update-after-sensitive-enabled": Refusal(
        ("true",), "it is always on"
    ),
    "table.exec.legacy-cast-behaviour": Refusal(
        ("disabled",), "CAST fails where it cannot convert; TRY_CAST gives NULL"
    ),
    "table.legacy-nested-row-nullability": Refusal(
        ("false",), "fields of nested rows keep their nullability"
    ),
    "table.plan.compile.catalog-objects": Refusal(("all",), _WHOLE_PLANS),
    "table.plan.restore.catalog-objects": Refusal(("all",), _WHOLE_PLANS),
    "table.rtas-ctas.atomicity-enabled": Refusal(
        ("false",), "a table that CREATE TABLE AS makes stays when its job fails; drop it then"
    ),
}

_CLUSTER: Final = "it is about processes of Flink's clusters; Spark or this machine runs the tasks"
_JVM: Final = "it is about Java classes, of which Millstream has none"
_SERIALIZERS: Final = "types define how values are written"
_PERFORMANCE: Final = "it is about how Flink computes, and does not change results"
_PLANNER: Final = "it is about how Flink plans a query, and does not change results"
_EVENTS: Final = "reporters get metrics and spans, not events"
_STATE_METRICS: Final = "accesses to state are not measured one by one"
_BATCH: Final = "batch mode runs in micro-batches, as bounded jobs of streaming mode do"
_SECURITY: Final = (
    "docs/concepts/security.md describes how Millstream's connections and files are protected"
)
_STATE: Final = "it is about how Flink's state backends work"
_CHECKPOINT_FILES: Final = "it is about the files of Flink's checkpoints"
_DIRECTORY: Final = "execution.checkpointing.dir sets where checkpoints are kept"
_QUERYABLE: Final = "state cannot be queried while a job runs; read its checkpoint instead"
_PYTHON: Final = "user functions run in the tasks themselves, not in a process beside the JVM"
_ASYNC: Final = "it is about functions that Millstream does not have"
_MINI_BATCH: Final = "mini-batches are what arrives together"
#: By key, or by what keys begin with if it ends with a dot or hyphen; the longest one counts.
_WITHOUT_EFFECT: Final[dict[str, str]] = {
    "akka.": _CLUSTER,
    "application-result-store.": _CLUSTER,
    "blob.": _CLUSTER,
    "classloader.": _JVM,
    "cleanup-strategy.": _CLUSTER,
    "client.": _CLUSTER,
    "cluster.": _CLUSTER,
    "collect-sink.": "results of collect() come by Millstream's own path",
    "compiler.": _PLANNER,
    "completed-application-store.": _CLUSTER,
    "env.": _CLUSTER,
    "events.": _EVENTS,
    "execution.async-state.": _STATE,
    "execution.attached": "execute() waits for the job, execute_async() does not",
    "execution.batch-shuffle-mode": _BATCH,
    "execution.batch-state-backend.enabled": _BATCH,
    "execution.batch.": _BATCH,
    "execution.checkpointing.checkpoints-after-tasks-finish": (
        "checkpoints always continue after tasks finish"
    ),
    "execution.checkpointing.cleaner.": _CHECKPOINT_FILES,
    "execution.checkpointing.create-subdir": "a checkpoint directory belongs to one job",
    "execution.checkpointing.data-inline-threshold": _CHECKPOINT_FILES,
    "execution.checkpointing.during-recovery.enabled": _CHECKPOINT_FILES,
    "execution.checkpointing.file-merging.": _CHECKPOINT_FILES,
    "execution.checkpointing.incremental": "checkpoints are always incremental",
    "execution.checkpointing.interval-during-backlog": (
        "the interval is the same while a source catches up"
    ),
    "execution.checkpointing.local-backup.": "state is restored from the checkpoint directory",
    "execution.checkpointing.snapshot-compression": "files of a checkpoint are always compressed",
    "execution.checkpointing.storage": _DIRECTORY,
    "execution.checkpointing.unaligned.": _CHECKPOINT_FILES,
    "execution.checkpointing.write-buffer-size": _CHECKPOINT_FILES,
    "execution.job-listeners": _JVM,
    "execution.job-status-changed-listeners": _JVM,
    "execution.program-config.wildcards": "settings of the program always count",
    "execution.shutdown-on-": _CLUSTER,
    "execution.sort-keyed-partition.memory": _BATCH,
    "execution.sort-partition.memory": _BATCH,
    "execution.sorted-inputs.": _BATCH,
    "execution.state-recovery.approximate-local-recovery": "recovery is always exact",
    "execution.state-recovery.from-local": "state is restored from the checkpoint directory",
    "execution.submit-failed-job-on-application-error": _CLUSTER,
    "execution.terminate-application-on-any-job-terminated-exceptionally": _CLUSTER,
    "external-resource.": "Spark assigns resources to tasks",
    "external-resources": "Spark assigns resources to tasks",
    "flink.hadoop.": _CLUSTER,
    "flink.yarn.": _CLUSTER,
    "fs.": "file systems are Python's",
    "heartbeat.": _CLUSTER,
    "high-availability.": (
        "a new driver continues from the checkpoint directory, and excludes others"
    ),
    "historyserver.": _CLUSTER,
    "io.tmp.dirs": "millstream.local-directory sets where tasks keep their files",
    "jmx.": _CLUSTER,
    "job-event.": _CLUSTER,
    "job-result-store.": _CLUSTER,
    "jobmanager.": _CLUSTER,
    "jobstore.": _CLUSTER,
    "kubernetes.": _CLUSTER,
    "materialized-table.": "there are no materialized tables",
    "metrics.fetcher.": "metrics are collected when a reporter needs them",
    "metrics.internal.": "metrics of tasks come with their heartbeats and checkpoints",
    "metrics.scope.jm-operator": "the driver has no operators",
    "metrics.system-resource": "metrics are of the job and its processes, not of the machine",
    "metrics.system-resource-": "metrics are of the job and its processes, not of the machine",
    "minicluster.": _CLUSTER,
    "partition.fields.": "partitions of Hive are not read",
    "pekko.": _CLUSTER,
    "pipeline.cep.": _PERFORMANCE,
    "pipeline.classpaths": _JVM,
    "pipeline.closure-cleaner-level": "functions are pickled with what they use",
    "pipeline.force-avro": _SERIALIZERS,
    "pipeline.force-kryo": _SERIALIZERS,
    "pipeline.force-kryo-avro": _SERIALIZERS,
    "pipeline.generic-types": _SERIALIZERS,
    "pipeline.jars": "Millstream needs no jars",
    "pipeline.jobvertex-parallelism-overrides": (
        "vertices have other names here; use set_parallelism() of the operator"
    ),
    "pipeline.object-reuse": "records are never copied between operators of a stage",
    "pipeline.serialization-config": _SERIALIZERS,
    "pipeline.sources.pause-until-first-checkpoint": "sources read from the start",
    "pipeline.vertex-": "it is about how Flink shows a job",
    "pipeline.watermark-alignment.": "watermarks are aligned per split",
    "plugin.": _JVM,
    "process.": _CLUSTER,
    "python.": _PYTHON,
    "python.client.executable": "the program runs in the Python that starts it",
    "python.pythonpath": "tasks have the path of the driver; ship modules with python.files",
    "queryable-state.": _QUERYABLE,
    "resourcemanager.": _CLUSTER,
    "rest.": _CLUSTER,
    "scheduler-mode": "the parallelism stays as it is while a job runs",
    "security.": _SECURITY,
    "shuffle-service-factory.class": _JVM,
    "sink.committer.retries": "millstream.commit-retry.attempts sets how often commits are tried",
    "slot.": _CLUSTER,
    "slotmanager.": _CLUSTER,
    "slow-task-detector.": _BATCH,
    "source.": _PERFORMANCE,
    "sql-client.": "it is about the client of Flink",
    "sql-gateway.": "the threads of the SQL gateway are as many as its sessions and queries",
    "state.backend.forst.": _STATE,
    "state.backend.incremental": "checkpoints are always incremental",
    "state.backend.local-recovery": "state is restored from the checkpoint directory",
    "state.backend.rocksdb.": _STATE,
    "state.changelog.": "checkpoints of RocksDB are incremental",
    "state.checkpoint-storage": _DIRECTORY,
    "state.latency-track.": _STATE_METRICS,
    "state.size-track.": _STATE_METRICS,
    "state.storage.": _CHECKPOINT_FILES,
    "table.catalog-modification.listeners": _JVM,
    "table.exec.async-ml-predict.": _ASYNC,
    "table.exec.async-state.enabled": _STATE,
    "table.exec.async-table.": _ASYNC,
    "table.exec.async-vector-search.": _ASYNC,
    "table.exec.deduplicate.mini-batch.compact-changes-enabled": _PERFORMANCE,
    "table.exec.delta-join.": _PERFORMANCE,
    "table.exec.disabled-operators": _PERFORMANCE,
    "table.exec.dynamic-filtering.": _PERFORMANCE,
    "table.exec.emit.early-fire.delay": "windows are emitted when they end",
    "table.exec.emit.late-fire.delay": _LATE_ROWS,
    "table.exec.interval-join.": _PERFORMANCE,
    "table.exec.local-hash-agg.": _PERFORMANCE,
    "table.exec.mini-batch.allow-latency": _MINI_BATCH,
    "table.exec.mini-batch.size": _MINI_BATCH,
    "table.exec.operator-fusion-codegen.enabled": _PERFORMANCE,
    "table.exec.rank.topn-cache-size": _PERFORMANCE,
    "table.exec.resource.": _PERFORMANCE,
    "table.exec.simplify-operator-name-enabled": "it is about how Flink shows a job",
    "table.exec.sink.require-on-conflict": "a sink whose key is not the query's keeps the last row",
    "table.exec.sink.upsert-materialize-strategy.": _PERFORMANCE,
    "table.exec.sort.": _PERFORMANCE,
    "table.exec.spill-compression.": _PERFORMANCE,
    "table.exec.uid.": "operators of SQL find their state by what they compute",
    "table.exec.unbounded-over.version": _PERFORMANCE,
    "table.exec.window-agg.buffer-size-limit": _PERFORMANCE,
    "table.generated-code.": _JVM,
    "table.optimizer.": _PLANNER,
    "table.resources.": _JVM,
    "task.cancellation.": "the engine cancels tasks",
    "taskmanager.": _CLUSTER,
    "taskmanager.memory.": "executors have the memory that Spark gives them",
    "traces.checkpoint.span-detail-level": "spans of checkpoints have all children",
    "user.artifacts.": _JVM,
    "web.": _CLUSTER,
    "workflow-scheduler.": "there are no materialized tables",
    "yarn.": _CLUSTER,
    "zookeeper.": _CLUSTER,
}


@cache
def flink_options() -> tuple[FlinkOption, ...]:
    """Return all options of Flink's, in order of their keys."""
    found = []
    # The package may be an archive on a worker's path.
    listed = resources.files(__package__).joinpath(_LIST).read_text(encoding="utf-8")
    for line in listed.splitlines():
        if not line.startswith("#"):
            key, kind, default, aliases, *_ = (*line.split("\t"), "", "")
            found.append(FlinkOption(key, kind, default, tuple(filter(None, aliases.split(",")))))
    return tuple(found)


@cache
def named_flink_options() -> Mapping[str, FlinkOption]:
    """Return all options of Flink's by key and by alias."""
    found = {alias: each for each in flink_options() for alias in each.aliases}
    return {**found, **{each.key: each for each in flink_options()}}


def option_refusals() -> Mapping[str, Refusal]:
    """Return which options are refused, by key; one that Millstream applies is not among them."""
    return {key: refusal for key, refusal in _REFUSED.items() if key not in ALL_OPTIONS}


def why_without_effect(key: str) -> str | None:
    """Return why an option has no effect; None if it is applied, refused, or not one of Flink's."""
    known = named_flink_options().get(key)
    name = key if known is None else known.key
    if name in ALL_OPTIONS or name in _REFUSED:
        return None
    if name in _WITHOUT_EFFECT:
        return _WITHOUT_EFFECT[name]
    begins = [each for each in _WITHOUT_EFFECT if name.startswith(each) and each[-1] in ".-"]
    return _WITHOUT_EFFECT[max(begins, key=len)] if begins else None


def refused_option(entries: Mapping[str, object]) -> str | None:
    """Return the error for an option that would change results or recovery; None without one.

    Args:
        entries: what is set, by key.
    """
    refusals = option_refusals()
    for key, value in entries.items():
        known = named_flink_options().get(key)
        refusal = None if known is None else refusals.get(known.key)
        if refusal is not None and not refusal.takes(value):
            shown = redacted(key, parse_string(value))
            return f"Option '{key}' = '{shown}' is not in this release: {refusal.instead}."
    return None


_LOG: Final = logging.getLogger("millstream")
_said: Final[set[str]] = set()


def say_once(text: str) -> None:
    """Warn of what a program does, once per process."""
    if text not in _said:
        _said.add(text)
        _LOG.warning("%s", text)


def accept(option: str, reason: str) -> None:
    """Say, once per process, that an option has no effect.

    Args:
        option: as the program writes it, such as ``set_buffer_timeout()``.
        reason: why it needs none.
    """
    say_once(f"{option} has no effect, {reason}")
