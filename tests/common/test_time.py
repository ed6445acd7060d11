"""Durations, times and instants."""

from __future__ import annotations

import datetime as dt
import pickle

import pytest

from millstream.types.time import Duration, DurationLike, Instant, Time, milliseconds_of


def test_units_agree() -> None:
    assert (
        Duration.of_days(1)
        == Duration.of_hours(24)
        == Duration.of_minutes(1440)
        == Duration.of_seconds(86_400)
        == Duration.of_millis(86_400_000)
        == Duration.of_nanos(86_400_000_000_000)
        == Time.days(1)
        == Time.hours(24)
        == Time.minutes(1440)
        == Time.seconds(86_400)
        == Time.milliseconds(86_400_000)
    )
    assert Duration.of_nanos(1_999_999).to_milliseconds() == 1
    assert Duration.of_seconds(1) < Duration.of_minutes(1)
    assert hash(Duration.of_hours(1)) == hash(Duration.of_minutes(60))
    assert pickle.loads(pickle.dumps(Time.seconds(5))) == Duration.of_seconds(5)


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (Duration.of_days(2), "Duration(2 d)"),
        (Duration.of_minutes(90), "Duration(90 min)"),
        (Duration.of_millis(1500), "Duration(1500 ms)"),
        (Duration.of_millis(0), "Duration(0 ms)"),
        (Duration.of_nanos(7), "Duration(7 ns)"),
    ],
)
def test_repr(length: Duration, text: str) -> None:
    assert repr(length) == text


@pytest.mark.parametrize(
    "length", [Duration.of_seconds(5), Time.seconds(5), dt.timedelta(seconds=5), 5000]
)
def test_whatever_stands_for_a_length(length: DurationLike) -> None:
    assert milliseconds_of(length) == 5000


@pytest.mark.parametrize("length", ["5 s", 5.0, True, None])
def test_what_is_no_length(length: object) -> None:
    with pytest.raises(TypeError, match="not a length of time"):
        milliseconds_of(length)  # type: ignore[arg-type]


@pytest.mark.parametrize("millis", [0, 1, 999, 1000, -1, -1000, -1001, 1_357_000_000_123])
def test_instants(millis: int) -> None:
    instant = Instant.of_epoch_milli(millis)
    assert instant.to_epoch_milli() == millis
    assert 0 <= instant.nanos < 10**9
    assert instant == Instant(instant.seconds, instant.nanos)
    assert hash(instant) == hash(Instant(instant.seconds, instant.nanos))


def test_instant_repr() -> None:
    assert repr(Instant(1, 2)) == "Instant<1, 2>"


def test_time_takes_milliseconds() -> None:
    assert Time(1500) == Time.milliseconds(1500) == Duration.of_millis(1500)
    assert str(Time.seconds(5)) == "5000 ms"
    assert pickle.loads(pickle.dumps(Time.minutes(1))) == Time(60_000)
