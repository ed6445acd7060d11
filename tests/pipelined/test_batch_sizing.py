"""How many records a batch has, by what batches have cost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from millstream.runtime.pipelined.batch_sizing import BatchSizer

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = 0.02
MOST = 1 << 20
#: Records of a frame.
FRAME = 16_384


def process(sizer: BatchSizer, frames: int, seconds: Callable[[int], float]) -> float:
    """Process so many frames in batches; returns the seconds that it takes."""
    taken = 0.0
    for _ in range(frames):
        left = FRAME
        while left:
            records = min(left, sizer.limit)
            taken += seconds(records)
            sizer.processed(records, seconds(records))
            left -= records
    return taken


def test_batches_of_a_slow_function_are_short() -> None:
    sizer = BatchSizer(MOST, TARGET)
    process(sizer, 1, lambda records: 0.001 * records)
    assert 0.001 * sizer.limit <= 2 * TARGET


def test_what_is_quick_is_not_cut() -> None:
    sizer = BatchSizer(MOST, TARGET)
    process(sizer, 4, lambda records: 2e-7 * records)
    assert sizer.limit >= FRAME


@pytest.mark.parametrize("begin", [0.05, 0.5])
def test_a_dear_beginning_is_paid_for_seldom(begin: float) -> None:
    """A model that is called once per batch."""
    sizer = BatchSizer(MOST, TARGET)

    def seconds(records: int) -> float:
        return begin + 1e-5 * records

    process(sizer, 4, seconds)
    assert process(sizer, 40, seconds) < 2 * 40 * seconds(FRAME)


def test_a_function_that_becomes_slow_is_noticed() -> None:
    sizer = BatchSizer(MOST, TARGET)
    process(sizer, 40, lambda records: 0.05 + 1e-5 * records)
    process(sizer, 10, lambda records: 0.001 * records)
    assert 0.001 * sizer.limit <= 2 * TARGET


def batches_of(sizer: BatchSizer, count: int, each: Callable[[int], float]) -> list[float]:
    """Process batches of large batches; returns the seconds of each.

    Args:
        count: of batches.
        each: seconds of a record, by number of the batch.
    """
    taken = []
    for number in range(count):
        records = min(sizer.limit, FRAME)
        taken.append(records * each(number))
        sizer.processed(records, taken[-1])
    return taken


@pytest.mark.parametrize("slow", range(12))
@pytest.mark.parametrize("factor", [1.0, 1.6, 5.0])
def test_one_slow_spell_makes_no_long_batches(slow: int, factor: float) -> None:
    """Of a function that takes 10 ms for each record, a call to a service, say."""

    def each(number: int) -> float:
        return 0.01 * factor if number == slow else 0.01

    sizer = BatchSizer(MOST, TARGET)
    taken = batches_of(sizer, 3000, each)
    assert max(taken) <= 4 * TARGET * factor
    # Once in ten seconds of work two or three longer ones are tried.
    assert sum(seconds > 2 * TARGET for seconds in taken) <= 3 * (1 + sum(taken) / 10)


def test_noise_makes_no_long_batches() -> None:
    noise = random.Random(11)
    sizer = BatchSizer(MOST, TARGET)
    taken = batches_of(sizer, 5000, lambda _: 0.01 * noise.choice([1, 1, 1, 1, 1, 1.6, 3]))
    assert max(taken) < 1
    assert sum(taken[2500:]) / 2500 <= 2 * TARGET


def test_records_that_begin_cheap_make_one_long_batch() -> None:
    sizer = BatchSizer(MOST, TARGET)
    taken = batches_of(sizer, 100, lambda number: 0.01 if number else 0.0001)
    assert max(taken) <= 0.5
    assert sorted(taken)[-2] <= 2 * TARGET


@pytest.mark.parametrize("begin", [0.015, 0.03, 0.5])
def test_what_takes_the_same_whatever_its_length_is_not_cut(begin: float) -> None:
    noise = random.Random(5)

    def seconds(records: int) -> float:
        return begin * noise.uniform(0.8, 1.3)

    sizer = BatchSizer(MOST, TARGET)
    assert process(sizer, 2, seconds) < 60 * begin
    assert process(sizer, 400, seconds) < 1.4 * 400 * begin


def test_short_batches_are_not_cut_either() -> None:
    sizer = BatchSizer(MOST, TARGET)
    process(sizer, 20, lambda records: 0.5 + 1e-5 * records)
    for _ in range(100):
        assert sizer.limit >= 200
        sizer.processed(200, 0.5)


def test_a_beginning_that_is_not_dear_any_more_is_noticed() -> None:
    """Also if whole frames take little longer than before."""
    sizer = BatchSizer(MOST, TARGET)
    process(sizer, 200, lambda records: 0.5 + 1e-5 * records)
    process(sizer, 200, lambda records: 5e-5 * records)
    assert 5e-5 * sizer.limit <= 4 * TARGET


def test_batches_of_a_source() -> None:
    sizer = BatchSizer(16_384, 0.005)
    first = sizer.limit
    for _ in range(20):
        sizer.processed(min(3, first - 2), 0.0001)
    assert sizer.limit == first, "few records say nothing"
    for _ in range(20):
        sizer.processed(sizer.limit, 0.0001)
    assert sizer.limit == 16_384
    for _ in range(20):
        sizer.processed(sizer.limit, 0.02 * sizer.limit)
    assert sizer.limit == 1
    # Each poll takes a tenth of a second: most of the time is not to go there.
    for _ in range(50):
        sizer.polled(0.1)
        sizer.processed(sizer.limit, 0.02 * sizer.limit)
    assert 2 <= sizer.limit <= 10


class Machine:
    """Runs batches of a function in simulated time; there are always enough records.

    Args:
        seed: of costs, noise and stalls.
        longest: seconds of a call that costs most.
    """

    def __init__(self, seed: int, longest: float = 0.5) -> None:
        self._random = random.Random(seed)
        self.target = self._random.choice([0.005, 0.02])
        self.fixed = longest * 10 ** self._random.uniform(-4, 0)
        self.each = 10 ** self._random.uniform(-7, -2)
        self.sizer = BatchSizer(1 << 16, self.target)

    def cost(self, records: int) -> float:
        return self.fixed + self.each * records

    @property
    def goal(self) -> float:
        """Seconds of a batch of which the fixed cost is a small part."""
        return max(self.target, self.fixed + max(self.fixed, min(3 * self.fixed, 1.0)))

    def run(self, batches: int, factor: float = 1.0, stalls: float = 0.02) -> tuple[float, float]:
        """Returns records per second of work, and the work of the longest batch in seconds."""
        records, work, longest = 0, 0.0, 0.0
        for _ in range(batches):
            limit = self.sizer.limit
            seconds = self.cost(limit) * self._random.uniform(0.8, 1.3) * factor
            if self._random.random() < stalls:
                seconds *= 20
            self.sizer.processed(limit, seconds)
            records, work = records + limit, work + self.cost(limit)
            longest = max(longest, self.cost(limit))
        return records / work, longest

    @property
    def best(self) -> float:
        """Records per second of batches of the length that is wanted."""
        wanted = max(1, min(1 << 16, (self.goal - self.fixed) / self.each))
        return wanted / self.cost(int(wanted))


@pytest.mark.parametrize("seed", range(40))
def test_sizes_converge_whatever_calls_and_records_cost(seed: int) -> None:
    machine = Machine(seed)
    machine.run(12, stalls=0)
    rate, longest = machine.run(200, stalls=0)
    assert rate >= 0.7 * machine.best
    assert longest <= 4.5 * max(machine.goal, machine.cost(1))


@pytest.mark.parametrize("seed", range(40))
def test_a_stall_now_and_then_changes_little(seed: int) -> None:
    machine = Machine(seed)
    machine.run(12)
    rate, _ = machine.run(200)
    assert rate >= 0.7 * machine.best


@pytest.mark.parametrize("seed", range(40))
def test_sizes_recover_when_a_crowded_machine_is_free_again(seed: int) -> None:
    """Where the system does not say how long a thread waited, batches take 30 times as long."""
    machine = Machine(seed, longest=0.05)
    machine.run(100, stalls=0)
    machine.run(20, factor=30, stalls=0)
    machine.run(40, stalls=0)
    rate, _ = machine.run(20, stalls=0)
    assert rate >= 0.5 * machine.best


def test_one_stall_halves_one_batch() -> None:
    sizer = BatchSizer(MOST, TARGET)
    process(sizer, 10, lambda records: 1e-6 * records)
    usual = sizer.limit
    sizer.processed(usual, 2.0)
    assert sizer.limit == usual // 2
    sizer.processed(sizer.limit, 1e-6 * sizer.limit)
    assert sizer.limit >= usual // 2
    for _ in range(2):
        sizer.processed(sizer.limit, 1e-6 * sizer.limit)
    assert sizer.limit >= usual


def test_records_that_are_processed_at_the_same_time_are_never_cut() -> None:
    sizer = BatchSizer(MOST, TARGET, least=200)
    for _ in range(50):
        assert sizer.limit >= 200
        sizer.processed(min(sizer.limit, 200), 0.05)
        assert sizer.wanted >= 200


def test_short_batches_are_put_together_as_far_as_it_is_worth_it() -> None:
    costly, cheap = BatchSizer(MOST, TARGET), BatchSizer(MOST, TARGET)
    process(costly, 4, lambda records: 0.05 + 1e-4 * records)
    process(cheap, 4, lambda records: 1e-4 + 1e-6 * records)
    assert costly.is_costly
    assert costly.wanted >= 1000
    assert not cheap.is_costly
    assert 200 <= cheap.wanted <= 400
