"""Restart strategies, with the time told to them."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest

from millstream import errors
from millstream.configuration.configuration import Configuration
from millstream.configuration.restart_strategies import (
    RestartStrategies,
    RestartStrategyConfiguration,
)
from millstream.errors import (
    CheckpointExpiredError,
    ConfigurationError,
    FencedError,
    JobError,
    LocalCopyError,
    PermanentSinkError,
    ProgramError,
    SinkError,
    SourceError,
    StateStoreError,
    UserFunctionError,
)
from millstream.execution import restart
from millstream.execution.restart import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    GiveUpOnRepeats,
    NoRestart,
    Recovery,
    RestartStrategy,
    restart_strategy,
)
from millstream.types.time import Duration

ERROR = SourceError("disk")


def strategy(checkpointing: bool = True, /, **values: str) -> RestartStrategy:
    options = {
        "restart-strategy." + key.replace("__", ".").replace("_", "-"): value
        for key, value in values.items()
    }
    guarded = restart_strategy(Configuration(options), checkpointing=checkpointing)
    assert isinstance(guarded, GiveUpOnRepeats)
    return guarded.strategy


def delays(strategy: RestartStrategy, count: int, now: float = 0.0) -> list[float | None]:
    found = []
    for _ in range(count):
        delay = strategy.next_delay(now, ERROR)
        found.append(delay)
        now += (delay or 0.0) + 1.0
    return found


def test_none() -> None:
    assert delays(NoRestart(), 1) == [None]


def test_fixed_delay() -> None:
    assert delays(FixedDelay(2, 0.5), 4) == [0.5, 0.5, None, None]


def test_failure_rate_counts_what_lies_in_the_interval() -> None:
    rate = FailureRate(2, interval=60, delay=0.5)
    # The third failure finds the first 50 s back; 61 s would be out of the interval.
    assert [rate.next_delay(now, ERROR) for now in (0, 40, 50)] == [0.5, 0.5, None]
    rate = FailureRate(2, interval=60, delay=0.5)
    times = (0, 40, 61, 101, 122, 160)
    assert [rate.next_delay(now, ERROR) for now in times] == [*[0.5] * 5, None]


def test_failure_rate_at_its_bounds() -> None:
    never = FailureRate(0, interval=10, delay=1)
    assert never.next_delay(0, ERROR) is None
    exactly = FailureRate(1, interval=10, delay=1)
    assert [exactly.next_delay(now, ERROR) for now in (0, 10)] == [1, None]
    beyond = FailureRate(1, interval=10, delay=1)
    assert [beyond.next_delay(now, ERROR) for now in (0, 10.001)] == [1, 1]


def test_exponential_delay_grows_to_its_maximum() -> None:
    exponential = ExponentialDelay(1, 10, 2, jitter_factor=0)
    assert delays(exponential, 6) == [1, 2, 4, 8, 10, 10]


def test_exponential_delay_is_reset_by_quiet() -> None:
    exponential = ExponentialDelay(1, 10, 2, reset_backoff_threshold=100, jitter_factor=0)
    assert exponential.next_delay(0, ERROR) == 1
    assert exponential.next_delay(5, ERROR) == 2
    # The second restart was at 7: quiet counts from there.
    assert exponential.next_delay(106.9, ERROR) == 4
    assert exponential.next_delay(211, ERROR) == 1


def test_exponential_delay_attempts_start_again_after_quiet() -> None:
    exponential = ExponentialDelay(1, 10, 2, 100, jitter_factor=0, attempts_before_reset_backoff=2)
    assert delays(exponential, 2) == [1, 2]
    assert exponential.next_delay(1000, ERROR) == 1
    assert delays(exponential, 2, 1002) == [2, None]


def test_what_fails_before_a_restart_waits_for_that_one() -> None:
    """As in Flink: two regions that a server's end has failed are one failure."""
    exponential = ExponentialDelay(4, 10, 2, jitter_factor=0, attempts_before_reset_backoff=2)
    assert [exponential.next_delay(now, ERROR) for now in (0, 0, 1, 3)] == [4, 4, 3, 1]
    assert [exponential.next_delay(now, ERROR) for now in (5, 6)] == [8, 7]
    assert exponential.next_delay(20, ERROR) is None


def test_jitter_stays_in_its_bounds() -> None:
    found = set()
    for seed in range(50):
        exponential = ExponentialDelay(10, 10.5, 2, jitter_factor=0.1, random=random.Random(seed))
        delay = exponential.next_delay(0, ERROR)
        assert delay is not None
        assert 9 <= delay <= 10.5
        found.add(delay)
    assert len(found) > 10


@pytest.mark.parametrize("error", [ProgramError("x"), FencedError("x"), ConfigurationError("x")])
def test_no_restart_where_it_cannot_help(error: Exception) -> None:
    assert GiveUpOnRepeats(FixedDelay(9, 1)).next_delay(0, error) is None
    wrapped = JobError("failed")
    wrapped.__cause__ = error
    assert GiveUpOnRepeats(FixedDelay(9, 1)).next_delay(0, wrapped) is None


def _classes(kind: type[errors.MillstreamError]) -> list[type[errors.MillstreamError]]:
    return [kind, *(each for below in kind.__subclasses__() for each in _classes(below))]


def test_each_class_of_errors_is_decided_on_by_itself() -> None:
    ours = {kind for kind in _classes(errors.MillstreamError) if kind.__module__ == errors.__name__}
    assert ours == {kind for kind in restart._RECOVERY if issubclass(kind, errors.MillstreamError)}
    assert {kind.__name__ for kind in ours} == {
        name for name in vars(errors) if name.endswith("Error")
    }


@pytest.mark.parametrize(
    "kind", [kind for kind, what in restart._RECOVERY.items() if what is Recovery.NEVER]
)
def test_permanent_failures_end_the_job_at_once(kind: type[Exception]) -> None:
    assert GiveUpOnRepeats(FixedDelay(9, 1)).next_delay(0, kind("x")) is None


@pytest.mark.parametrize(
    "error", [StateStoreError("disk"), LocalCopyError("damaged"), OSError("x"), RuntimeError("x")]
)
def test_what_may_pass_is_run_again(error: Exception) -> None:
    guarded = GiveUpOnRepeats(FixedDelay(9, 1))
    assert [guarded.next_delay(0, error) for _ in range(9)] == [1] * 9


def test_errors_of_code_end_the_job_when_they_come_again() -> None:
    guarded = GiveUpOnRepeats(FixedDelay(9, 1))
    missing = ModuleNotFoundError("No module named 'x'")
    assert [guarded.next_delay(0, missing) for _ in range(3)] == [1, 1, None]
    # What a client library raised is explained by an error of ours, which decides.
    guarded = GiveUpOnRepeats(FixedDelay(9, 1))
    down = SinkError("the server is down")
    down.__cause__ = TypeError("of a client library")
    assert [guarded.next_delay(0, down) for _ in range(9)] == [1] * 9


def test_a_poisoned_record_ends_the_job() -> None:
    guarded = GiveUpOnRepeats(FixedDelay(99, 1), max_repeats=3)
    poison = UserFunctionError("record 7")
    assert [guarded.next_delay(0, poison) for _ in range(3)] == [1, 1, None]


def test_repeats_are_counted_in_a_row_and_without_progress() -> None:
    guarded = GiveUpOnRepeats(FixedDelay(99, 1), max_repeats=2)
    poison, other = UserFunctionError("record 7"), UserFunctionError("record 8")
    for error in (poison, other, poison, ERROR, ERROR, ERROR, poison):
        assert guarded.next_delay(0, error) == 1
    guarded.on_progress()
    assert guarded.next_delay(0, poison) == 1
    assert guarded.next_delay(0, poison) is None


def test_what_a_target_refuses_for_good_ends_the_job(caplog: pytest.LogCaptureFixture) -> None:
    guarded = GiveUpOnRepeats(FixedDelay(99, 1), max_repeats=3)
    # Of two records that are refused either may be met first.
    tries = [PermanentSinkError("record 7"), PermanentSinkError("record 9")] * 2
    assert [guarded.next_delay(0, error) for error in tries[:3]] == [1, 1, None]
    assert "millstream.user-error.max-repeats = 3" in caplog.text


def test_what_a_target_may_take_later_is_tried_again() -> None:
    guarded = GiveUpOnRepeats(FixedDelay(99, 1), max_repeats=3)
    refused = PermanentSinkError("record 7")
    assert [guarded.next_delay(0, SinkError("down")) for _ in range(9)] == [1] * 9
    for error in (refused, refused, SinkError("down"), refused, refused):
        assert guarded.next_delay(0, error) == 1
    guarded.on_progress()
    assert [guarded.next_delay(0, refused) for _ in range(3)] == [1, 1, None]


def test_defaults_are_those_of_flink() -> None:
    assert isinstance(strategy(False), NoRestart)
    exponential = strategy()
    assert isinstance(exponential, ExponentialDelay)
    assert (exponential.initial_backoff, exponential.max_backoff) == (1, 60)
    assert (exponential.backoff_multiplier, exponential.jitter_factor) == (1.5, 0.1)
    assert exponential.reset_backoff_threshold == 3600
    assert exponential.attempts_before_reset_backoff is None
    fixed = strategy(type="fixed-delay")
    assert isinstance(fixed, FixedDelay)
    assert (fixed.attempts, fixed.delay) == (1, 1)


@pytest.mark.parametrize("kind", ["none", "off", "disable", "NONE"])
def test_names_of_none(kind: str) -> None:
    assert isinstance(strategy(type=kind), NoRestart)


def test_options_of_the_failure_rate() -> None:
    rate = strategy(type="failure-rate")
    assert isinstance(rate, FailureRate)
    assert (rate.max_failures, rate.interval, rate.delay) == (1, 60, 1)
    rate = strategy(
        type="failurerate",
        failure_rate__max_failures_per_interval="3",
        failure_rate__failure_rate_interval="5 min",
        failure_rate__delay="10 s",
    )
    assert isinstance(rate, FailureRate)
    assert (rate.max_failures, rate.interval, rate.delay) == (3, 300, 10)


@pytest.mark.parametrize(
    ("made", "description", "expected"),
    [
        (
            RestartStrategies.fixed_delay_restart(3, dt.timedelta(seconds=2)),
            "Restart with fixed delay (2000 ms). #3 restart attempts.",
            FixedDelay(3, 2),
        ),
        (
            RestartStrategies.failure_rate_restart(4, Duration.of_minutes(1), 500),
            (
                "Failure rate restart with maximum of 4 failures within interval 60000 ms and "
                "fixed delay 500 ms."
            ),
            FailureRate(4, 60, 0.5),
        ),
    ],
)
def test_objects_give_the_strategies_that_they_name(
    made: RestartStrategyConfiguration, description: str, expected: RestartStrategy
) -> None:
    guarded = restart_strategy(Configuration(made.entries))
    assert isinstance(guarded, GiveUpOnRepeats)
    assert guarded.strategy == expected
    assert made.get_description() == description
    again = type(made)(**_arguments(made))
    assert (made == again, hash(made)) == (True, hash(again))


def _arguments(made: RestartStrategyConfiguration) -> dict[str, Any]:
    if isinstance(made, RestartStrategies.FixedDelayRestartStrategyConfiguration):
        return {
            "restart_attempts": made.get_restart_attempts(),
            "delay_between_attempts_interval": made.get_delay_between_attempts_interval(),
        }
    if isinstance(made, RestartStrategies.FailureRateRestartStrategyConfiguration):
        return {
            "max_failure_rate": made.get_max_failure_rate(),
            "failure_interval": made.get_failure_interval(),
            "delay_between_attempts_interval": made.get_delay_between_attempts_interval(),
        }
    raise AssertionError(made)


def test_no_restart_and_what_the_configuration_says() -> None:
    none = RestartStrategies.no_restart()
    assert none.get_description() == "Restart deactivated."
    guarded = restart_strategy(Configuration(none.entries))
    assert isinstance(guarded, GiveUpOnRepeats)
    assert isinstance(guarded.strategy, NoRestart)
    fallback = RestartStrategies.fall_back_restart()
    assert fallback.get_description() == "Cluster level default restart strategy"
    assert fallback.entries == {}
    with pytest.raises(TypeError, match="is not a length of time"):
        RestartStrategies.fixed_delay_restart(1, "10 s")  # type: ignore[arg-type]


def test_options() -> None:
    fixed = strategy(type="fixeddelay", fixed_delay__attempts="3", fixed_delay__delay="200 ms")
    assert isinstance(fixed, FixedDelay)
    assert (fixed.attempts, fixed.delay) == (3, 0.2)
    exponential = strategy(
        type="exponential-delay",
        exponential_delay__initial_backoff="5 s",
        exponential_delay__max_backoff="2min",
        exponential_delay__backoff_multiplier="3",
        exponential_delay__attempts_before_reset_backoff="8",
    )
    assert isinstance(exponential, ExponentialDelay)
    assert (exponential.initial_backoff, exponential.max_backoff) == (5, 120)
    assert (exponential.backoff_multiplier, exponential.attempts_before_reset_backoff) == (3, 8)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"type": "sometimes"}, "restart-strategy.type"),
        ({"type": "fixed-delay", "fixed_delay__attempts": "-1"}, "fixed-delay.attempts"),
        ({"type": "fixed-delay", "fixed_delay__delay": "soon"}, "fixed-delay.delay"),
        ({"exponential_delay__backoff_multiplier": "0.5"}, "backoff-multiplier"),
        ({"exponential_delay__backoff_multiplier": "x"}, "backoff-multiplier"),
        ({"exponential_delay__jitter_factor": "2"}, "between 0 and 1"),
        ({"exponential_delay__initial_backoff": "1 h"}, "longer than"),
    ],
)
def test_options_that_make_no_sense(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        strategy(**values)


def test_tolerated_epochs_run_again_at_once_without_asking_the_strategy() -> None:
    configuration = Configuration(
        {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1",
            "restart-strategy.fixed-delay.delay": "5 s",
            "execution.checkpointing.tolerable-failed-checkpoints": "2",
        }
    )
    tolerant = restart_strategy(configuration)
    expired = CheckpointExpiredError("epoch 7 was given up")
    assert [tolerant.next_delay(0.0, expired) for _ in range(2)] == [0.0, 0.0]
    tolerant.on_progress()  # none in a row any more
    wrapped = JobError("query ended")
    wrapped.__cause__ = expired
    assert [tolerant.next_delay(0.0, wrapped) for _ in range(2)] == [0.0, 0.0]
    # The third in a row is a failure of the job, as any other error is.
    assert tolerant.next_delay(0.0, expired) == 5.0
    assert tolerant.next_delay(0.0, ERROR) is None
    assert restart_strategy(Configuration()).next_delay(0.0, expired) != 0.0
