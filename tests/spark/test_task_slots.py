"""What Spark would let a pipelined job wait for without a word is said at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.engines.registry import describe_engine
from millstream.engines.spark import pipelined
from millstream.engines.spark.pipelined import TaskSlots
from millstream.engines.spark.session import WARM_UP, get_session
from millstream.errors import EngineError


class Sequence:
    """As Scala has them."""

    def __init__(self, *items: object) -> None:
        self.items = items

    def size(self) -> int:
        return len(self.items)

    def apply(self, index: int) -> object:
        return self.items[index]


class Option:
    """As Scala has them."""

    def __init__(self, value: str | None) -> None:
        self.value = value

    def isDefined(self) -> bool:  # noqa: N802 - Scala's
        return self.value is not None

    def get(self) -> str | None:
        return self.value


def job(
    number: int, status: str, group: str | None, description: str | None, tasks: int = 0
) -> object:
    values = {
        "numActiveTasks": tasks,
        "jobId": number,
        "status": status,
        "jobGroup": Option(group),
        "description": Option(description),
        "name": "collect at job.py:1",
    }
    return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})


def executor(name: str, cores: int) -> object:
    values = {"id": name, "hostPort": f"{name}:7", "totalCores": cores, "maxTasks": cores}
    return SimpleNamespace(**{key: lambda value=value: value for key, value in values.items()})


def task_slots(
    master: str,
    options: dict[str, str] | None = None,
    *,
    total: int = 0,
    executors: tuple[object, ...] = (),
    jobs: tuple[object, ...] = (),
    at_work: int = 0,
) -> TaskSlots:
    """Of a session of which only this is known."""
    profiles = SimpleNamespace(defaultResourceProfile=lambda: "default")
    store = SimpleNamespace(
        executorList=lambda _: Sequence(*executors), jobsList=lambda _: Sequence(*jobs)
    )
    scala = SimpleNamespace(
        resourceProfileManager=lambda: profiles,
        maxNumConcurrentTasks=lambda _: total,
        statusStore=lambda: store,
        statusTracker=lambda: SimpleNamespace(
            getExecutorInfos=lambda: [SimpleNamespace(numRunningTasks=lambda: at_work)]
        ),
    )
    given = options or {}
    conf = SimpleNamespace(get=given.get)
    context = SimpleNamespace(
        master=master, getConf=lambda: conf, _jsc=SimpleNamespace(sc=lambda: scala)
    )
    return TaskSlots(cast("Any", SimpleNamespace(sparkContext=context)))


DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}


@pytest.mark.parametrize("master", ["spark://master:7077", "yarn", "local-cluster[2,1,1024]"])
def test_dynamic_allocation_is_refused(master: str) -> None:
    with pytest.raises(EngineError, match=r"spark.dynamicAllocation.enabled to false.*: epochs"):
        task_slots(master, DYNAMIC).require(1)


def test_dynamic_allocation_has_no_effect_in_one_process() -> None:
    task_slots("local[2]", DYNAMIC, total=2).require(2)


@pytest.mark.parametrize(
    ("master", "options", "most", "words"),
    [
        ("local[2]", {}, 2, r"\(master local\[2\]\).*master local\[3\]"),
        ("local-cluster[2,1,1024]", {}, 2, r"local-cluster\[2,1,1024\]\).*session 3 cores"),
        ("local-cluster[2,3,1024]", {"spark.task.cpus": "2"}, 2, r"spark.task.cpus 2.* 6 cores"),
        ("spark://m:7077", {"spark.cores.max": "2"}, 2, r"spark.cores.max 2\).*look at"),
        ("spark://m:7077", {"spark.cores.max": "5", "spark.task.cpus": "2"}, 2, r"cpus 2\)"),
        (
            "yarn",
            {"spark.executor.instances": "2", "spark.executor.cores": "1"},
            2,
            r"spark.executor.instances 2, spark.executor.cores 1\).*spark.executor.instances times",
        ),
    ],
)
def test_what_can_never_be_is_refused(
    master: str, options: dict[str, str], most: int, words: str
) -> None:
    slots = task_slots(master, options, total=2)
    slots.require(most)
    wanted = rf"needs {most + 1} task slots .* can have {most} .*{words}.*execution: epochs"
    with pytest.raises(EngineError, match=wanted):
        slots.require(most + 1)


@pytest.mark.parametrize("master", ["spark://m:7077", "yarn", "k8s://https://m"])
def test_executors_that_have_not_registered_may_still_come(master: str) -> None:
    task_slots(master, {"spark.executor.cores": "1"}).require(100)
    if master.startswith("spark:"):
        # A standalone cluster asks for that with dynamic allocation only.
        both = {"spark.executor.instances": "2", "spark.executor.cores": "1"}
        task_slots(master, both).require(100)
    said = task_slots(master).shortage(2, "own")
    assert "Spark has 0 task slots (no executor has registered), and the job needs 2" in said
    assert "Executors may still be starting" in said


def test_a_cluster_that_is_too_small() -> None:
    executors = (executor("driver", 0), executor("1", 1))
    said = task_slots("spark://m:7077", total=1, executors=executors).shortage(2, "own")
    assert "Spark has 1 task slot (executor 1 at 1:7 with 1 core), and the job needs 2" in said
    assert "look at spark.cores.max and at the workers and applications of the master" in said


def test_the_jobs_that_others_run() -> None:
    jobs = (
        job(1, "SUCCEEDED", "done", None),
        job(2, "RUNNING", "own", "Millstream"),
        job(3, "RUNNING", "report", "a very long\n description " * 9),
        job(4, "RUNNING", None, None),
        *(job(number, "RUNNING", None, "more") for number in range(5, 10)),
    )
    executors = (executor("1", 2), executor("2", 2))
    said = task_slots("yarn", total=4, executors=executors, jobs=jobs).shortage(4, "own")
    assert "4 task slots (executor 1 at 1:7 with 2 cores, executor 2 at 2:7 with 2 cores)" in said
    assert "runs other jobs: job 3 of group 'report' (a very long description a very" in said
    assert (
        "job 4 (collect at job.py:1), job 5 (more), job 6 (more), job 7 (more) and 2 more" in said
    )
    assert "job 1" not in said
    assert "job 2" not in said
    assert "\n" not in said
    alone = task_slots("yarn", total=4, executors=executors, jobs=jobs[:2]).shortage(4, "own")
    assert "no other job of this session runs on them" in alone


def test_the_start_of_workers_is_no_job_of_others() -> None:
    slots = task_slots("local[2]", total=2, jobs=(job(1, "RUNNING", None, WARM_UP, 1),))
    assert not slots.are_taken(2, "own")
    assert "no other job of this session runs on them" in slots.shortage(2, "own")


@pytest.mark.parametrize(
    ("at_work", "others", "known", "started"),
    [
        (0, False, 0, False),
        (1, False, 0, False),
        (2, False, 0, True),  # whatever the store knows: all of them are its own
        (2, True, 0, False),
        (4, True, 1, True),  # one of a barrier stage: all of it
    ],
)
def test_tasks_that_spark_has_started(
    at_work: int, others: bool, known: int, started: bool
) -> None:
    jobs = [job(1, "RUNNING", "own", "Millstream", known)]
    if others:
        jobs.append(job(2, "RUNNING", "report", "daily", 2))
    slots = task_slots("yarn", total=4, jobs=tuple(jobs), at_work=at_work)
    assert slots.has_started(2, "own") is started
    said = slots.shortage(2, "own")
    assert ("started the tasks, but their Python workers do not come" in said) is started
    assert ("of group 'report' (daily)" in said) is (others and not started)


def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(EngineError, match=r"uses Spark Connect.*without SPARK_REMOTE"):
        get_session(Configuration())


WIDE: dict[str, dict[str, str]] = {
    "local[2]": {},
    "local[2,4]": {},
    "local": {},
    "local-cluster[2,1,1024]": {},
    "spark://m:7077": {"spark.cores.max": "2"},
    "yarn": {"spark.dynamicAllocation.enabled": "true"},
}


@pytest.mark.parametrize("master", WIDE)
@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
@pytest.mark.parametrize("key", ["millstream.spark.master", "spark.master"])
def test_what_can_never_be_is_refused_before_spark_starts(
    master: str, execution: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the plan says so."""
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr(pipelined, "get_session", lambda _: pytest.fail("Spark was started"))
    settings = {key: master, "millstream.execution": execution, **WIDE[master]}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
    env.set_parallelism(3).from_collection([1]).map(lambda value: value).print()
    graph = env.get_job_graph()
    why = "dynamic allocation" if master == "yarn" else "needs 3 task slots"
    words = describe_engine(graph)
    assert ("refused: " if execution == "pipelined" else "not pipelined: ") in words
    assert why in words
    with pytest.raises(EngineError, match=why):
        pipelined.submit(graph)


def test_what_a_session_may_have_is_not_refused_before_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masters = [{"millstream.spark.master": each} for each in ("local[*]", "spark://m:7077")]
    for settings in (*masters, {}):
        env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
        env.set_parallelism(99).from_collection([1]).map(lambda value: value).print()
        monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
        assert "pipelined would do, too" in describe_engine(env.get_job_graph())
    # The job runs on a session of the program's, whatever is said of another.
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration({"millstream.spark.master": "local[1]"})
    )
    env.set_parallelism(2).from_collection([1]).map(lambda value: value).print()
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", object)
    assert "pipelined would do, too" in describe_engine(env.get_job_graph())


@pytest.mark.parametrize(
    ("total", "at_work", "own", "most"),
    [
        (4, 1, 1, 4),
        (4, 3, 1, 2),  # two are tasks of other jobs
        (4, 0, 2, 4),  # its own have not begun yet
        (2, 3, 2, 1),  # an executor has gone
    ],
)
def test_slots_that_a_job_can_be_scaled_to(total: int, at_work: int, own: int, most: int) -> None:
    assert task_slots("yarn", total=total, at_work=at_work).free_for(own) == most
