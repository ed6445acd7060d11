"""State of a checkpoint is read without the program: every section, every entry."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.checkpoint import kept_program as program
from tests.checkpoint.test_kept_checkpoint import RELEASES, unpack

from millstream.checkpoint.inspect import inspect_checkpoint
from millstream.checkpoint.local_storage import LocalStorage
from millstream.cli.main import main
from millstream.errors import StateError
from millstream.state.key_codec import encode_key
from millstream.state.reader import open_state, readable_key, readable_value
from millstream.state.serializers import dumps
from millstream.testing.mini_cluster import MiniCluster
from millstream.types.row import Row

if TYPE_CHECKING:
    from pathlib import Path

CUT, EPOCHS = 12, 3
#: Sections by operator, and the kinds of them; those of functions are in the program.
SECTIONS = {
    "tumbling-reduce": {"\0windows.aligned": "accumulators of windows"},
    "tumbling-process": {"\0windows.aligned elements": "elements of windows"},
    "tumbling-many": {"\0windows.panes": "panes"},
    "sessions-many": {"\0windows.fragments": "session fragments"},
    "sessions-reduce": {
        "\0timers.event": "timers",
        "\0windows.accumulators": "namespaced",
        "\0windows.merging": "merging windows",
    },
    "tumbling-fires-continuous": {
        "\0timers.event": "timers",
        "\0windows.chunks": "namespaced",
        "\0windows.elements": "window elements",
        "\0windows.function:value:fires": "namespaced",
        "\0windows.trigger:reducing:fire-time": "namespaced",
        "last": "value",
        "seen": "list",
    },
    "near": {"\0join.left": "map", "\0join.right": "map", "\0timers.event": "timers"},
}


@pytest.fixture(scope="module", params=["hashmap", "rocksdb", *RELEASES])
def checkpoint(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of ``kept_program.py``, stopped; and as each release left it."""
    directory = tmp_path_factory.mktemp("job")
    if request.param in RELEASES:
        unpack(directory, request.param)
    else:
        graph = program.build(2, directory / "results").get_job_graph("read")
        cluster = MiniCluster(
            graph, directory / "checkpoint", limits=[2 * CUT] * 9, state_backend=request.param
        )
        cluster.run(EPOCHS)
        cluster.coordinator.close()
    return directory / "checkpoint"


def _entries(checkpoint: Path, uid: str) -> dict[str, list[Any]]:
    storage = LocalStorage(str(checkpoint))
    manifest = inspect_checkpoint(storage).manifest
    with open_state(storage, manifest, uid) as state:
        return {
            each.section.name: list(state.entries(each.section.name)) for each in state.sections()
        }


@pytest.mark.sampled(every=3)
def test_every_section_is_named_and_every_entry_read(checkpoint: Path) -> None:
    storage = LocalStorage(str(checkpoint))
    manifest = inspect_checkpoint(storage).manifest
    read = 0
    for uid in manifest.operators:
        with open_state(storage, manifest, uid) as state:
            sections = {each.section.name: each.section for each in state.sections()}
            if uid in SECTIONS:
                assert {name: each.kind for name, each in sections.items()} == SECTIONS[uid]
            numbers = [each.index for each in sections.values()]
            assert len(set(numbers)) == len(numbers)
            # Nothing is in a store that belongs to no section.
            known = {(each.letter, each.index) for each in sections.values()}
            for store, _ in state._stores:
                for name, _value in store.scan(b"A", b"Z"):
                    letter = name[:1].decode()
                    at = 3 if letter == "K" else 1
                    number = int.from_bytes(name[at : at + 2], "big")
                    assert letter == "M" or (letter, number) in known, (uid, name)
            read += sum(len(list(state.entries(name))) for name in sections)
    assert read > 500


def test_keys_windows_and_values_are_those_of_the_program(checkpoint: Path) -> None:
    values = {each.key: each.value for each in _entries(checkpoint, "keeps")["value"]}
    read = program.EVENTS[: EPOCHS * CUT]  # as many as what is kept of releases
    assert values == {
        key: sum(each[1] for each in read if each[0] == key) for key in {each[0] for each in read}
    }
    fires = _entries(checkpoint, "tumbling-fires-continuous")
    (window, *_) = {each.namespace for each in fires["\0windows.function:value:fires"]}
    assert window.end - window.start == 100
    sessions = _entries(checkpoint, "sessions-reduce")["\0windows.merging"]
    assert {each.key for each in sessions} <= {"a", "b", "c", "z"}
    assert all(window.start < window.end for each in sessions for window, _ in each.value)


def test_sums_of_panes_are_those_of_accumulators(checkpoint: Path) -> None:
    """Two layouts of the same windows, read from what the tool shows."""
    reduced = _entries(checkpoint, "tumbling-reduce")["\0windows.aligned"]
    sums: dict[Any, int] = {}
    for each in _entries(checkpoint, "tumbling-sum")["\0windows.panes"]:
        sums[each.time, each.key] = sums.get((each.time, each.key), 0) + each.value["p0"]
    assert sums == {(each.time, each.key): each.value[1] for each in reduced}


def test_classes_of_the_program_are_shown_by_name(checkpoint: Path) -> None:
    rows = _entries(checkpoint, "keeps")["row"]
    assert {type(each.value).__mro__[1] for each in rows} == {Row}
    shown = repr(rows[0].value)
    assert "place=tests.checkpoint.kept_program.Place(name='x', number=" in shown
    assert "colour=tests.checkpoint.kept_program.Colour(1)" in shown
    places = _entries(checkpoint, "places")["\0windows.panes"]
    assert "tests.checkpoint.kept_program.Place('" in repr(places[0].key)


@pytest.mark.sampled(every=3)
def test_the_command_needs_no_program(checkpoint: Path, tmp_path: Path) -> None:
    """In a process that cannot import the tests."""
    paths = [path for path in sys.path if path.endswith(("src", "site-packages"))]
    done = subprocess.run(
        [sys.executable, "-m", "millstream", "checkpoints", str(checkpoint), "state",
         "--operator", "keeps", "--key", "a", "--limit", "1"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "keeps (uid 'keeps')" in done.stdout
    assert "Pair(" in done.stdout
    assert "key 'a': ('a', [" in done.stdout
    assert "key 'b'" not in done.stdout


@pytest.mark.sampled(every=3)
def test_the_command_lists_and_filters(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(checkpoint)
    assert main(["checkpoints", directory, "state"]) == 0
    shown = capsys.readouterr().out
    assert "(windows.panes)" in shown
    assert "map, expires" in shown
    assert main(["checkpoints", directory, "state", "--operator", "in mid-stream"]) == 0
    assert "(windows.aligned):" in capsys.readouterr().out
    only = ["--operator", "near", "--section", "(join.left)", "--limit", "1"]
    assert main(["checkpoints", directory, "state", *only]) == 0
    shown = capsys.readouterr().out
    assert "--limit shows more than 1" in shown
    assert "(join.right)" not in shown
    assert main(["checkpoints", directory, "state", "--operator", "nobody"]) == 1
    assert "no operator of uid or name 'nobody'; there are: " in capsys.readouterr().err
    assert main(["checkpoints", directory, "state", "--section", "nothing"]) == 1
    assert "no section 'nothing'" in capsys.readouterr().err


class _Evil:
    def __reduce__(self) -> Any:
        return os.system, ("exit 1",)


def test_nothing_of_the_program_is_run() -> None:
    shown = readable_value(dumps([_Evil(), {"a": 1}]))
    assert repr(shown) == "[posix.system('exit 1'), {'a': 1}]"
    key = encode_key((program.Place("x", 1), program.Colour.RED, frozenset([1]), {"a": (1.5,)}))
    assert repr(readable_key(key)) == (
        "(tests.checkpoint.kept_program.Place('x', 1),"
        " tests.checkpoint.kept_program.Colour.RED(), frozenset(1), dict(('a', (1.5,))))"
    )
    assert readable_key(encode_key(Row(a=1, b="x"))) == Row(a=1, b="x")


NUMBERS = [
    np.array([[1.5, 2], [3, 4]]),
    np.asfortranarray([[1, 2], [3, 4]], dtype=">i4"),
    np.array(["a", "bc"]),
    np.array([(1, (2.5, 3))], dtype=[("a", "i1"), ("b", "f8", 2)]),
    np.array(["2020-01-02", "2021-03-04"], dtype="M8[ms]"),
    np.array([b"x", None, ("y", 1)], dtype=object),
    np.array([], dtype="i8"),
    np.int64(7),
    np.float32(0.5),
    np.datetime64(5, "us"),
    np.str_("text"),
    np.bool_(True),
]


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
def test_values_of_numpy_come_out_as_they_are(value: Any) -> None:
    stored = pickle.dumps([value, value], 4)
    shown = readable_value(stored)
    assert repr(shown) == repr(pickle.loads(stored))
    if isinstance(value, np.generic):
        assert type(shown[0]) is type(value)
    else:
        np.testing.assert_array_equal(shown[0], value)


class _Calls:
    """Pickles as a call of a function, and the state that it is given then."""

    def __init__(self, function: Any, arguments: Any, *state: Any) -> None:
        self.made = (function, arguments, *state)

    def __reduce__(self) -> Any:
        return self.made


_OBJECT = _Calls(np.dtype, ("O8",), (3, "|", None, None, None, -1, -1, 63))
_OUTSIDE = _Calls(
    np.dtype,
    ("V4",),
    (3, "|", None, ("a",), {"a": (np.dtype("i8"), 4096)}, 4, 1, 16),
)
_HIDDEN = _Calls(np.dtype, ("V8",), (3, "|", None, ("a",), {"a": (_OBJECT, 0)}, 8, 1, 16))
_NEW = np.zeros(1).__reduce__()[0]
_MADE = np.int8(1).__reduce__()[0]


@pytest.mark.parametrize(
    "evil",
    [
        _Calls(np.ndarray, ((1,), "O", b"8 bytes!")),
        _Calls(np.dtype, ("O,O",)),
        _Calls(_NEW, (np.ndarray, (0,), b"b"), (1, (1,), _OBJECT, False, b"8 bytes!")),
        _Calls(_NEW, (np.ndarray, (0,), b"b"), (1, (9,), _OBJECT, False, ["too few"])),
        _Calls(_NEW, (np.ndarray, (0,), b"b"), (1, (1,), _OUTSIDE, False, b"four")),
        _Calls(_NEW, (np.ndarray, (0,), b"b"), (1, (1,), _HIDDEN, False, b"8 bytes!")),
        _Calls(_NEW, (np.ndarray, (0,), b"b"), (1, (9,), np.dtype("i8"), False, b"8 bytes!")),
        _Calls(_NEW, (np.ndarray, (0,), b"b"), (1, (-1, -1), np.dtype("i8"), False, b"8 bytes!")),
        _Calls(_NEW, (list, (0,), b"b")),
        _Calls(_MADE, (_OBJECT, b"8 bytes!")),
        _Calls(_MADE, (_OUTSIDE, b"four")),
        _Calls(_MADE, (np.dtype("i8"), b"four")),
    ],
)
def test_numpy_is_given_no_pointers(evil: Any) -> None:
    with pytest.raises(StateError, match="a value cannot be read"):
        readable_value(pickle.dumps(evil, 4))
