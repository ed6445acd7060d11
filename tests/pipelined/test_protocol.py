"""Every checkpoint of every random job is a consistent cut, and every output exactly once.

Printed with a failure: the seed, which gives the same job, steps and kills again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.pipelined.random_graphs import random_graph
from tests.pipelined.simulation import InconsistentCutError, Simulation
from tests.support.tiers import sampled

from millstream.runtime.frames_in_flight import RestoredFrames
from millstream.runtime.pipelined.links import BARRIER
from millstream.runtime.pipelined.task import PipelinedTask
from millstream.runtime.pipelined.unaligned_checkpoints import Recording

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from millstream.runtime.pipelined.links import Barrier, Frame, InLink

#: Those with an odd number stay at their parallelism and engine; of three there are windows in one,
#: of seven one has its state in RocksDB.
SEEDS = range(9)


#: Barriers that overtake; of those with an even number all kinds are in one job.
OVERTAKING = range(20, 29)

#: In which slots are lost alone.
LOSING = (336, 393)


def simulate(
    seed: int,
    directory: Path,
    mode: str = "EXACTLY_ONCE",
    barriers: str = "aligned",
    losses: int = 0,
) -> Simulation:
    directory.mkdir(exist_ok=True)
    simulation = Simulation(
        random_graph(seed),
        seed,
        directory,
        changes=seed % 2 == 0,
        backend="rocksdb" if seed % 7 == 4 else "hashmap",
        mode=mode,
        barriers=barriers,
        losses=losses,
        kills=1 if losses else 3,
    )
    simulation.run()
    return simulation


def simulate_all(
    seeds: Iterable[int], directory: Path, barriers: str = "aligned"
) -> list[Simulation]:
    return [simulate(seed, directory / str(seed), barriers=barriers) for seed in seeds]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("seed", sampled(SEEDS, 2))
def test_each_checkpoint_is_a_consistent_cut(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    assert simulate(seed, tmp_path).compared


@pytest.mark.parametrize("seed", sampled(OVERTAKING, 1))
def test_each_checkpoint_is_a_cut_with_what_is_in_flight(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    barriers = "mixed" if seed % 2 == 0 else ("unaligned", "time-out")[seed // 2 % 2]
    assert simulate(seed, tmp_path, barriers=barriers).compared


@pytest.mark.extended
@pytest.mark.parametrize(
    "seed",
    [
        *sampled(LOSING, 1),
        *(pytest.param(n, marks=pytest.mark.soak) for n in range(300, 400)),
    ],
)
def test_each_checkpoint_is_a_cut_where_slots_are_replaced(tmp_path: Path, seed: int) -> None:
    """While regions that have no task in them go on."""
    print("seed", seed)
    barriers = "mixed" if seed % 2 == 0 else "aligned"
    simulation = simulate(seed, tmp_path, barriers=barriers, losses=5)
    assert simulation.compared
    assert simulation.lost or seed not in LOSING


@pytest.mark.extended
@pytest.mark.parametrize("seed", sampled([1, 2, 5, 7], 1))
def test_at_least_once_loses_nothing(tmp_path: Path, seed: int) -> None:
    """Of programs without windows, whose results are others if a record comes twice."""
    print("seed", seed)
    assert not random_graph(seed).is_timed
    assert simulate(seed, tmp_path, "AT_LEAST_ONCE").compared


@pytest.mark.extended
def test_the_simulation_does_what_it_is_for(tmp_path: Path) -> None:
    """Or it would show little: kills, checkpoints between them, failed ones, both engines."""
    done = simulate_all(range(100, 104), tmp_path)
    assert sum(each.runs - 1 for each in done) >= 4
    assert sum(len(each.compared) for each in done) >= 12
    assert any(each.epochs for each in done)
    assert any(each.given_up for each in done)
    assert any(each.restarted for each in done)
    assert any(each.declined for each in done)
    assert any(any(positions.values()) for each in done for _, positions in each.compared)


@pytest.mark.extended
def test_the_simulation_restarts_with_frames_in_flight(tmp_path: Path) -> None:
    """On both engines, at the same parallelism and at others: seeds are tried until all were."""
    restarted = Counter[str]()
    for seed in range(100, 200, 2):
        restarted += simulate(seed, tmp_path / str(seed), barriers="mixed").resumed
        if all(restarted[how] for how in ("same", "rescaled", "other engine")):
            return
    pytest.fail(f"only {restarted}")


@pytest.mark.extended
def test_a_seed_gives_the_same_again(tmp_path: Path) -> None:
    one, other = (simulate(2, tmp_path / name) for name in ("one", "other"))
    assert one.compared == other.compared
    assert one.clock.now == other.clock.now


@pytest.mark.extended
def test_without_alignment_checkpoints_are_no_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_barrier = PipelinedTask._take_barrier

    def go_on(self: PipelinedTask, link: InLink, frame: Frame) -> None:
        take_barrier(self, link, frame)
        link.blocked = False

    monkeypatch.setattr(PipelinedTask, "_take_barrier", go_on)
    with pytest.raises(InconsistentCutError, match="too many"):
        simulate_all(SEEDS, tmp_path)


def test_a_barrier_that_overtakes_records_makes_no_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_ready = PipelinedTask._next_ready

    def barriers_first(self: PipelinedTask) -> InLink | None:
        for link in self._inputs:
            kinds = [] if link.blocked else [frame.kind for frame in link.frames]
            if BARRIER in kinds:
                position = kinds.index(BARRIER)
                barrier = link.frames[position]
                del link.frames[position]
                link.frames.appendleft(barrier)
                return link
        return next_ready(self)

    monkeypatch.setattr(PipelinedTask, "_next_ready", barriers_first)
    with pytest.raises(InconsistentCutError, match="missing"):
        simulate_all(SEEDS, tmp_path)


def test_without_the_frames_in_flight_checkpoints_are_no_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recording, "write", lambda *_: None)
    with pytest.raises(InconsistentCutError, match="missing"):
        simulate_all(OVERTAKING, tmp_path, "unaligned")


@pytest.mark.slow
def test_without_the_frames_that_come_later_checkpoints_are_no_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a snapshot and the last barrier."""
    monkeypatch.setattr(Recording, "take", lambda *_: None)
    with pytest.raises(InconsistentCutError, match="missing"):
        simulate_all(OVERTAKING, tmp_path, "unaligned")


@pytest.mark.extended
def test_frames_behind_a_barrier_are_in_no_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Recording.begin

    def all_of_it(self: Recording, link: InLink, barrier: Barrier | None) -> None:
        begin(self, link, barrier)
        if barrier is not None:
            known = {id(frame) for frame in self._frames}
            more = (f for f in link.frames if f.kind != BARRIER and id(f) not in known)
            self._frames.extend(more)

    monkeypatch.setattr(Recording, "begin", all_of_it)
    with pytest.raises(InconsistentCutError, match="not sent so often"):
        simulate_all(OVERTAKING, tmp_path, "mixed")


@pytest.mark.extended
def test_without_restoring_what_was_in_flight_records_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RestoredFrames, "_read", lambda *_: [])
    with pytest.raises(InconsistentCutError, match="missing"):
        simulate_all(OVERTAKING, tmp_path, "unaligned")
