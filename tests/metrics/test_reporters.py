"""Reporters by option: which are started, what they get, and what they cannot do to a job."""

from __future__ import annotations

import json
import math
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.metrics.reference import PAGE, page
from tests.ports import free_port
from tests.support.environments import environments, wait_until

from millstream.common import Configuration
from millstream.contracts.metrics import METRIC_REPORTERS, MetricKind, MetricReporter
from millstream.datastream.connectors import DiscardingSink
from millstream.errors import ConfigurationError
from millstream.metrics import reporting
from millstream.metrics.definitions import Scope
from millstream.metrics.json_lines_reporter import JsonLinesReporter
from millstream.metrics.prometheus_reporter import Samples
from millstream.metrics.registry import Measurement
from millstream.metrics.reporting import MetricReporting
from millstream.metrics.settings import parse_filter, reporters_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from millstream.contracts.metrics import MetricSample
    from millstream.metrics.settings import ReporterSettings

DEADLINE = 60.0
VARIABLES = {
    "host": "here",
    "tm_id": "slot-1",
    "job_name": "a job",
    "task_name": "a -> b",
    "operator_name": "b",
    "subtask_index": "1",
}
RECORDS = Measurement(Scope.OPERATOR, (), "numRecordsIn", MetricKind.COUNTER, 7, VARIABLES)
WATERMARK = Measurement(
    Scope.OPERATOR, (), "currentInputWatermark", MetricKind.GAUGE, -5, VARIABLES
)
LOAD = Measurement(
    Scope.JOB_MANAGER, ("Status", "JVM", "CPU"), "Load", MetricKind.GAUGE, 0.5, {"host": "here"}
)
ALL = [RECORDS, WATERMARK, LOAD]


def settings(**options: str) -> ReporterSettings:
    given = {key.replace("_", "."): value for key, value in options.items()}
    configuration = Configuration({f"metrics.reporter.jsonl.{k}": v for k, v in given.items()})
    configuration.set_string("metrics.reporters", "jsonl")
    [found] = reporters_of(configuration)
    return found


def identifiers(found: ReporterSettings) -> list[str]:
    return [each.identifier for each in found.samples(ALL)]


def test_identifiers_are_flinks() -> None:
    assert identifiers(settings()) == [
        "here.taskmanager.slot-1.a job.b.1.numRecordsIn",
        "here.taskmanager.slot-1.a job.b.1.currentInputWatermark",
        "here.jobmanager.Status.JVM.CPU.Load",
    ]
    [_, _, load] = settings(scope_delimiter="/").samples(ALL)
    assert load.identifier == "here/jobmanager/Status/JVM/CPU/Load"
    assert load.scope == "jobmanager.Status.JVM.CPU"


def test_formats_of_scopes() -> None:
    configuration = Configuration(
        {
            "metrics.reporters": "jsonl",
            "metrics.scope.operator": "flink.<task_name>.<operator_name>.<nothing>",
            "metrics.scope.delimiter": "_",
        }
    )
    [found] = reporters_of(configuration)
    assert identifiers(found)[0] == "flink_a -> b_b_<nothing>_numRecordsIn"


def test_variables_are_left_out_and_added() -> None:
    found = settings(
        scope_variables_excludes="host;tm_id", scope_variables_additional="team:a,site:b"
    )
    [load] = found.samples([LOAD])
    assert load.variables == {"team": "a", "site": "b"}
    assert load.identifier.startswith("here.")


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("*", [True, True, True]),
        ("jobmanager.*", [False, False, True]),
        ("jobmanager", [False, False, False]),
        ("*.operator", [True, True, False]),
        ("*:num*", [True, False, False]),
        ("*:num*,*Watermark", [True, True, False]),
        ("*:*:gauge", [False, True, True]),
        ("*:*:counter,meter", [True, False, False]),
        ("*:[ln]*", [False, False, False]),
    ],
)
def test_filters(text: str, taken: list[bool]) -> None:
    names = [each.name for each, is_taken in zip(ALL, taken, strict=True) if is_taken]
    assert [each.name for each in settings(filter_includes=text).samples(ALL)] == names
    left = [each.name for each in settings(filter_excludes=text).samples(ALL)]
    assert left == [each.name for each in ALL if each.name not in names]


def test_a_list_of_filters() -> None:
    found = settings(filter_includes="jobmanager.*;*:num*", filter_excludes="*:Load")
    assert [each.name for each in found.samples(ALL)] == ["numRecordsIn"]


@pytest.mark.parametrize("text", ["a:b:c", "a:b:counter:d"])
def test_what_is_no_filter(text: str) -> None:
    with pytest.raises(ValueError, match="must "):
        parse_filter(text)
    with pytest.raises(
        ConfigurationError, match=r"metrics\.reporter\.jsonl\.filter\.includes is 'a"
    ):
        settings(filter_includes=text)


def test_only_those_that_are_listed_are_started() -> None:
    entries: dict[str, object] = {
        "metrics.reporter.a.class": "jsonl",
        "metrics.reporter.b.factory.class": "jsonl",
        "metrics.reporter.b.interval": "3 s",
        "metrics.reporter.jsonl.path": "c",
    }
    found = reporters_of(Configuration(entries))
    assert [(each.name, each.interval) for each in found] == [("a", 10), ("b", 3), ("jsonl", 10)]
    chosen = reporters_of(Configuration({**entries, "metrics.reporters": "b, jsonl"}))
    assert [each.name for each in chosen] == ["b", "jsonl"]


def test_classes_of_flink(caplog: pytest.LogCaptureFixture) -> None:
    package = "org.apache.flink.metrics"
    entries = {
        "metrics.reporter.p.factory.class": f"{package}.prometheus.PrometheusReporterFactory",
        "metrics.reporter.j.factory.class": f"{package}.jmx.JMXReporterFactory",
    }
    [found] = reporters_of(Configuration(entries))
    assert found.make is METRIC_REPORTERS["prometheus"]
    assert "metrics.reporter.j.factory.class has no effect" in caplog.text


def test_a_reporter_that_does_not_exist_fails_the_job_at_submission(tmp_path: Path) -> None:
    env = environments(tmp_path, {"execution.target": "local"})(1, {"metrics.reporters": "promt"})
    env.from_sequence(1, 3).sink_to(DiscardingSink())
    with pytest.raises(ConfigurationError, match=r"there is no metric reporter 'promt'; there are"):
        env.execute("a job")


def test_statuses_that_are_not_wanted_are_left_out() -> None:
    def status(name: str) -> Measurement:
        return Measurement(Scope.JOB, (), name, MetricKind.GAUGE, 1, {})

    many = [status(f"running{each}") for each in ("State", "Time", "TimeTotal")]
    others = [status("numRestarts"), status("lastCheckpointRestoreTime")]

    def names(value: str) -> list[str]:
        entries = {"metrics.reporters": "jsonl", "metrics.job.status.enable": value}
        [found] = reporters_of(Configuration(entries))
        return [each.name for each in found.samples([*many, *others])]

    both = ["numRestarts", "lastCheckpointRestoreTime"]
    assert names("CURRENT_TIME") == ["runningTime", *both]
    assert names("state;total_time") == ["runningState", "runningTimeTotal", *both]
    with pytest.raises(ConfigurationError, match="has 'CURRENT'; there are STATE, CURRENT_TIME"):
        names("CURRENT")


class Noting(MetricReporter):
    """Notes what happens, and fails or blocks as it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()

    def open(self, properties: Mapping[str, str]) -> None:
        del properties
        self._note("open")

    def report(self, samples: Sequence[MetricSample]) -> None:
        self._note(f"report {len(samples)}")

    def close(self) -> None:
        self._note("close")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.gate.wait(DEADLINE)
        if call.partition(" ")[0] in self.fails:
            message = f"no {call}"
            raise OSError(message)


def reporting_of(reporter: Noting) -> MetricReporting:
    found = settings()
    replaced = type(found)(found.name, lambda: reporter, found.properties, 0.01, found.formats)
    return MetricReporting("a job", [replaced], lambda: ALL)


def test_a_reporter_that_fails_is_tried_again_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "millstream")
    reporter = Noting()
    reporter.fails = {"open"}
    all_of_them = reporting_of(reporter)
    all_of_them.start()
    wait_until(lambda: len(reporter.calls) > 3, "it is opened again", DEADLINE)
    reporter.fails = {"report"}
    wait_until(lambda: reporter.calls.count("report 3") > 3, "reports", DEADLINE)
    reporter.fails = set()
    count = len(reporter.calls)
    wait_until(lambda: len(reporter.calls) > count + 2, "more reports", DEADLINE)
    all_of_them.close()
    assert reporter.calls[-2:] == ["report 3", "close"]
    failed = "metric reporter 'jsonl' of job 'a job' cannot "
    assert [text for text in caplog.messages if "works again" not in text] == [
        failed + "open: OSError: no open. The job continues, and the reporter is tried again",
        failed + "report: OSError: no report 3. The job continues, and the reporter is tried again",
    ]
    assert sum("works again" in text for text in caplog.messages) == 2


def test_a_reporter_that_blocks_does_not_hold_up_the_end_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporting, "_PATIENCE", 0.05)
    reporter = Noting()
    all_of_them = reporting_of(reporter)
    reporter.gate.clear()
    all_of_them.start()
    all_of_them.close()
    assert "did not end within" in caplog.text
    reporter.gate.set()


#: Raises whatever it is called with.
RAISING = "operator:truediv"


@pytest.mark.parametrize("mode", ["epochs", "pipelined"])
def test_a_job_finishes_whatever_its_reporters_do(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        METRIC_REPORTERS, "_built_in", {**METRIC_REPORTERS._built_in, "raising": RAISING}
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = {
            "metrics.reporters": "raising,prom,full,lines",
            "metrics.reporter.prom.class": "prometheus",
            "metrics.reporter.prom.port": str(taken.getsockname()[1]),
            "metrics.reporter.full.class": "jsonl",
            "metrics.reporter.full.path": "/dev/full",
            "metrics.reporter.lines.class": "jsonl",
            "metrics.reporter.lines.path": str(tmp_path / "lines"),
        }
        engine = {"execution.target": "local", "millstream.execution": mode}
        env = environments(tmp_path, engine)(1, options)
        env.from_sequence(1, 100).uid("numbers").sink_to(DiscardingSink()).uid("nowhere")
        env.execute("a job")
    lines = [json.loads(each) for each in (tmp_path / "lines").read_text().splitlines()]
    of: dict[tuple[str, str], Any] = {
        (each["variables"].get("operator_id", ""), each["name"]): each["value"] for each in lines
    }
    assert of["numbers", "numRecordsOut"] == of["nowhere", "numRecordsIn"] == 100
    assert of["", "numberOfCompletedCheckpoints"] >= 1
    assert "metric reporter 'raising' of job 'a job' cannot open: TypeError" in caplog.text
    assert "metric reporter 'prom' of job 'a job' cannot open: OSError: no port of" in caplog.text
    assert "metric reporter 'full' of job 'a job' cannot report: OSError" in caplog.text


def test_a_line_for_each_metric(tmp_path: Path) -> None:
    reporter = JsonLinesReporter()
    with pytest.raises(ConfigurationError, match="needs the option 'path'"):
        reporter.open({})
    reporter.open({"path": str(tmp_path / "lines")})
    samples = settings().samples(ALL)
    reporter.report(samples[:2])
    reporter.report(samples[2:])
    reporter.close()
    lines = [json.loads(each) for each in (tmp_path / "lines").read_text().splitlines()]
    assert [each["name"] for each in lines] == ["numRecordsIn", "currentInputWatermark", "Load"]
    assert lines[0].pop("time") > 1_700_000_000_000
    assert lines[0] == {
        "name": "numRecordsIn",
        "scope": "taskmanager.job.task.operator",
        "identifier": "here.taskmanager.slot-1.a job.b.1.numRecordsIn",
        "kind": "counter",
        "value": 7,
        "variables": VARIABLES,
    }


def test_statsd_gets_gauges_and_no_changes() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(DEADLINE)
        address = {"host": "127.0.0.1", "port": str(server.getsockname()[1])}
        values = {"count": 2.0, "sum": 3, "min": 1, "max": 2, "mean": 1.5}
        sizes = Measurement(
            Scope.OPERATOR, ("mine",), "sizes", MetricKind.HISTOGRAM, values, VARIABLES
        )
        rate = Measurement(Scope.TASK, (), "r", MetricKind.METER, 2.5, VARIABLES)
        samples = settings().samples([*ALL, sizes, rate])
        reporter = METRIC_REPORTERS["statsd"]()
        reporter.open(address)
        reporter.report(samples)
        reporter.close()
        begin = "here.taskmanager.slot-1.a-job.b.1."
        assert server.recv(2000).decode().splitlines() == [
            f"{begin}numRecordsIn:7|g",
            f"{begin}currentInputWatermark:0|g",
            f"{begin}currentInputWatermark:-5|g",
            "here.jobmanager.Status.JVM.CPU.Load:0.5|g",
            f"{begin}mine.sizes.count:2.0|g",
            f"{begin}mine.sizes.sum:3|g",
            f"{begin}mine.sizes.min:1|g",
            f"{begin}mine.sizes.max:2|g",
            f"{begin}mine.sizes.mean:1.5|g",
            "here.taskmanager.slot-1.a-job.a-->-b.1.r.rate:2.5|g",
        ]
        tagged = METRIC_REPORTERS["statsd"]()
        tagged.open({**address, "tags": "true"})
        tagged.report(samples[2:3] * 100)
        tagged.close()
        packets = [server.recv(2000) for _ in range(2)]
        assert all(len(each) < 1400 for each in packets)
        line = "flink.jobmanager.Status.JVM.CPU.Load:0.5|g|#host:here"
        assert packets[0].decode().splitlines()[0] == line


class Gateway(BaseHTTPRequestHandler):
    """Notes what is pushed and deleted."""

    requests: ClassVar[list[tuple[str, str, str]]] = []

    def do_PUT(self) -> None:
        self._note("PUT")

    def do_DELETE(self) -> None:
        self._note("DELETE")

    def _note(self, method: str) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.requests.append((method, self.path, content.decode()))
        self.send_response(202)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Be quiet."""


def test_numbers_that_a_format_does_not_have(tmp_path: Path) -> None:
    values = [math.nan, -math.inf, 10**400, 1]
    all_of_them = [
        Measurement(Scope.JOB, (), f"n{at}", MetricKind.GAUGE, value, {})
        for at, value in enumerate(values)
    ]
    sizes = {"count": 1, "sum": math.nan, "min": math.nan, "max": 10**400, "mean": math.inf}
    all_of_them.append(Measurement(Scope.JOB, (), "sizes", MetricKind.HISTOGRAM, sizes, {}))
    samples = settings().samples(all_of_them)
    lines = JsonLinesReporter()
    lines.open({"path": str(tmp_path / "lines")})
    lines.report(samples)
    text = (tmp_path / "lines").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    found = [json.loads(each)["value"] for each in text.splitlines()]
    assert found[:4] == [None, None, 10**400, 1]
    assert found[4] == {"count": 1, "sum": None, "min": None, "max": 10**400, "mean": None}
    registry = CollectorRegistry()
    registry.register(Samples(lambda: samples, {}))
    shown = generate_latest(registry).decode()
    assert "flink_jobmanager_job_n2 +Inf\n" in shown
    assert "flink_jobmanager_job_n3 1.0\n" in shown
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(DEADLINE)
        statsd = METRIC_REPORTERS["statsd"]()
        statsd.open({"host": "127.0.0.1", "port": str(server.getsockname()[1])})
        statsd.report([samples[0], samples[1], samples[3], samples[4]])
        statsd.close()
        names = [each.partition(":")[0] for each in server.recv(4000).decode().splitlines()]
    assert [each.rpartition(".")[2] for each in names] == ["n3", "count", "max"]


@pytest.mark.parametrize("given", ["0", "99 ms"])
def test_an_interval_that_leaves_no_time_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match=r"interval is .*; it must be at least 100 ms"):
        settings(interval=given)
    assert settings(interval="100 ms").interval == 0.1


def test_a_forked_process_does_not_keep_the_port() -> None:
    port = free_port()
    reporter = METRIC_REPORTERS["prometheus"]()
    reporter.open({"port": str(port)})
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)  # until the test is over
        os._exit(0)
    try:
        os.close(reader)
        reporter.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), DEADLINE).close()
        again = METRIC_REPORTERS["prometheus"]()
        again.open({"port": str(port)})
        again.close()
    finally:
        os.close(writer)
        os.waitpid(child, 0)


def test_a_push_gateway_gets_the_text_and_is_cleaned_up() -> None:
    Gateway.requests.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        reporter = METRIC_REPORTERS["promgateway"]()
        url = f"http://127.0.0.1:{server.server_port}"
        given = {"hostUrl": url, "jobName": "mine", "randomJobNameSuffix": "false"}
        reporter.open({**given, "groupingKey": "team=a;site=b"})
        reporter.report(settings().samples(ALL))
        reporter.close()
        server.shutdown()
    [(put, path, text), (deleted, deleted_path, _)] = Gateway.requests
    assert (put, deleted) == ("PUT", "DELETE")
    assert path == deleted_path == "/metrics/job/mine/site/b/team/a"
    assert 'flink_jobmanager_Status_JVM_CPU_Load{host="here"} 0.5' in text


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "needs the option 'hostUrl'"),
        ({"hostUrl": "h", "randomJobNameSuffix": "false"}, "needs the option 'jobName'"),
        ({"hostUrl": "h", "groupingKey": "a"}, "groupingKey must have entries"),
    ],
)
def test_push_gateways_need_an_address(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        METRIC_REPORTERS["promgateway"]().open(given)


def test_the_page_lists_what_there_is() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.metrics.reference"
