"""What the uploader does with a snapshot: output is pre-committed while state is uploaded."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.model import OperatorAck, TaskAck
from millstream.contracts.key_value_store import StateFile
from millstream.contracts.operator import OperatorStateHandle, OperatorStateKind
from millstream.errors import SinkError, StateError
from millstream.runtime.pipelined.control import Acknowledged, Declined
from millstream.runtime.pipelined.uploader import PendingAck, Uploader, release_lost
from millstream.state.operator_state import PendingStates
from millstream.types.pickling import loads

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds that only a failure takes.
_LONG = 30


class _Steps:
    """Output and state of one snapshot, and what was done with them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.preparing, self.uploading = threading.Event(), threading.Event()
        self.output_error: BaseException | None = None
        self.state_error: BaseException | None = None
        self.when_prepared: Callable[[], None] = lambda: None
        self.state = _State(self)
        ack = OperatorAck("op", 0, 0)
        self.pending = PendingAck(
            TaskAck(7, 1, 0, "a", operators=[ack]),
            [(ack, self.state)],
            [],
            LocalStorage("nothing is written here"),
            lambda whole: whole,
            [],
            [(ack, self)],
        )

    def finish(self) -> list[object]:
        self.preparing.set()
        assert self.uploading.wait(_LONG) or self.pending.is_given_up
        self.log.append("prepared")
        self.when_prepared()
        if self.output_error is not None:
            raise self.output_error
        return ["a committable"]

    def abandon(self) -> None:
        self.log.append("output abandoned")


class _State:
    def __init__(self, steps: _Steps) -> None:
        self._steps = steps

    def finish(self) -> Any:
        self._steps.uploading.set()
        assert self._steps.preparing.wait(_LONG)
        self._steps.log.append("uploaded")
        if self._steps.state_error is not None:
            raise self._steps.state_error
        return {"id": "s", "files": []}

    def tidy(self) -> None:
        self._steps.log.append("tidied")

    def abandon(self) -> None:
        self._steps.log.append("state abandoned")


def done_with(steps: _Steps) -> tuple[list[Any], list[BaseException]]:
    """What the uploader tells the driver, and of what the slot fails."""
    told: list[Any] = []
    failed: list[BaseException] = []
    uploader = Uploader(0, told.append, failed.append)
    uploader.take(steps.pending)
    uploader.close()
    assert steps.pending.is_done
    return told, failed


def test_neither_waits_for_the_other() -> None:
    steps = _Steps()
    (message,), failed = done_with(steps)
    assert isinstance(message, Acknowledged)
    whole = loads(message.ack)
    assert isinstance(whole, TaskAck)
    (ack,) = whole.operators
    assert [loads(each) for each in ack.committables] == ["a committable"]
    assert dict(ack.state or {}) == {"id": "s", "files": []}
    assert not failed
    assert sorted(steps.log[:2]) == ["prepared", "uploaded"]
    assert steps.log[2:] == ["tidied"]


def test_output_that_cannot_be_prepared_is_for_the_task_to_raise() -> None:
    steps = _Steps()
    steps.output_error = SinkError("refused")
    assert done_with(steps) == ([], [])
    assert steps.pending.failures == [steps.output_error]


def test_state_that_cannot_be_stored_is_declined_with_its_output_prepared() -> None:
    steps = _Steps()
    steps.state_error = OSError("no space")
    (message,), failed = done_with(steps)
    assert isinstance(message, Declined)
    assert not failed
    assert "prepared" in steps.log
    assert steps.log[-1] == "state abandoned"
    assert steps.pending.ack.operators[0].committables


def test_output_comes_first_where_neither_can_be() -> None:
    steps = _Steps()
    steps.output_error, steps.state_error = SinkError("refused"), OSError("no space")
    assert done_with(steps) == ([], [])
    assert steps.pending.failures == [steps.output_error]


@pytest.mark.parametrize("of_output", [False, True])
def test_a_slot_that_fails_leaves_nothing_at_work(of_output: bool) -> None:
    steps = _Steps()
    error = KeyboardInterrupt() if of_output else StateError("damaged")
    if of_output:
        steps.output_error = error
    else:
        steps.state_error = error
    told, failed = done_with(steps)
    assert told == []
    assert failed == [error]
    assert "prepared" in steps.log
    assert not [each for each in threading.enumerate() if each.name == "millstream-pre-commit"]


@pytest.mark.parametrize("stopped", [False, True])
def test_what_is_given_up_is_not_uploaded(stopped: bool) -> None:
    steps = _Steps()
    steps.pending.is_given_up, steps.pending.is_stopped = True, stopped
    steps.uploading.set()
    assert done_with(steps) == ([], [])
    first = "output abandoned" if stopped else "prepared"
    assert steps.log == [first, "state abandoned"]


def test_nobody_hears_of_the_storage_once_it_is_given_up() -> None:
    steps = _Steps()
    steps.state_error = OSError("no space")

    def give_up() -> None:
        steps.pending.is_given_up = True

    steps.when_prepared = give_up
    assert done_with(steps) == ([], [])
    assert steps.log[-1] == "state abandoned"


def test_without_output_no_thread_begins() -> None:
    steps = _Steps()
    steps.pending.outputs = []
    steps.preparing.set()
    began: list[int] = []
    steps.state.finish = lambda: began.append(threading.active_count())  # type: ignore[method-assign]
    before = threading.active_count()
    (message,), _ = done_with(steps)
    assert isinstance(message, Acknowledged)
    assert began == [before + 1]  # the uploader's own


@pytest.mark.parametrize("given_up", [False, True])
def test_nothing_is_acknowledged_behind_output_that_is_lost(given_up: bool) -> None:
    # The driver may have given the first up, and would publish the second without its records.
    lost, behind, others = _Steps(), _Steps(), _Steps()
    lost.output_error = SinkError("refused")
    if given_up:
        lost.pending.is_given_up = True
        lost.uploading.set()
    behind.pending.failures = lost.pending.failures  # those of one task
    told: list[Any] = []
    failed: list[BaseException] = []
    uploader = Uploader(0, told.append, failed.append)
    for each in (lost, behind, others):
        uploader.take(each.pending)
    uploader.close()
    assert lost.pending.failures == [lost.output_error]
    assert behind.log == ["output abandoned", "state abandoned"]
    assert len(told) == 1  # another task's
    assert others.log[-1] == "tidied"
    assert not failed


def test_what_is_stopped_while_its_output_is_prepared_is_not_acknowledged() -> None:
    steps = _Steps()

    def stop() -> None:
        steps.pending.is_given_up = steps.pending.is_stopped = True

    steps.when_prepared = stop
    assert done_with(steps) == ([], [])
    assert steps.log[-1] == "state abandoned"


class _Hanging:
    """A state whose upload does not end until the storage is back."""

    def __init__(self, back: threading.Event, begun: threading.Event) -> None:
        self._back, self._begun = back, begun
        self.content: bytes | None = b"x" * 1000

    def finish(self) -> Any:
        self._begun.set()
        assert self._back.wait(_LONG)
        return {"id": "s", "files": []}

    def tidy(self) -> None:
        """Nothing is superfluous."""

    def abandon(self) -> None:
        self.content = None


class _Storage:
    """Notes what is written."""

    pack_below = 0

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, name: str, content: bytes) -> None:
        del content
        self.written.append(name)


def test_what_waits_behind_a_storage_that_hangs_is_released_when_it_is_aborted() -> None:
    """Of a hundred checkpoints, the storage has two to write when it is back; none was kept."""
    back, begun = threading.Event(), threading.Event()
    storage: Any = _Storage()
    owed: list[PendingStates] = []
    told: list[Any] = []
    uploader = Uploader(0, told.append, told.append)
    states: list[_Hanging] = []
    taken: list[PendingAck] = []
    for number in range(100):
        ack = OperatorAck("op", 0, 0)
        files = {f"state/op/{number}": b"y" * 1000}
        if number == 1:
            files["state/op/same"] = b"z"
        named = [f"state/op/{number}", *(["state/op/same"] if number else [])]
        ack.operator_states = {name: _handle(name) for name in named}
        states.append(_Hanging(back, begun))
        whole = TaskAck(number, 1, 0, "a", operators=[ack])
        pending = PendingAck(
            whole, [(ack, states[-1])], [PendingStates({}, files)], storage, lambda each: each, owed
        )
        taken.append(pending)
        release_lost(taken)
        uploader.take(pending)
        if number == 0:
            assert begun.wait(_LONG)
        if number < 99:  # it has expired
            pending.is_lost = True
            release_lost(taken)
    assert [number for number, each in enumerate(states) if each.content] == [0, 99]
    kept = {name for each in taken[1:] for of in each.states for name in of.files}
    assert kept == {"state/op/99", "state/op/same"}
    back.set()
    uploader.close()
    assert [type(each) for each in told] == [Acknowledged, Acknowledged]
    assert storage.written == ["state/op/0", "state/op/same", "state/op/99"]
    assert not owed


def _handle(name: str) -> OperatorStateHandle:
    file = StateFile(local="", remote=name, size=0, digest="")
    return OperatorStateHandle(OperatorStateKind.UNION, 1, (), file)
