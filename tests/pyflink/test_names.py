"""Each public name of PyFlink is here with its parameters, or is explained; the page says so."""

from __future__ import annotations

import pytest
from tests.pyflink import comparison
from tests.pyflink.comparison import Name, difference

from millstream.not_offered import NOT_OFFERED


def test_every_name_is_here_or_explained() -> None:
    assert list(comparison.compare()) == []


def test_the_page_is_up_to_date() -> None:
    made = comparison.page()
    assert comparison.PAGE.read_text() == made, "run python -m tests.pyflink.comparison"


def test_the_import_of_a_missing_module_says_what_to_take_instead() -> None:
    missing = {f"millstream.{module}" for module, path in comparison.reasons() if path == "*"}
    assert missing <= set(NOT_OFFERED)


@pytest.mark.parametrize(
    ("module", "path", "parameters", "wrong"),
    [
        ("common.types", "Row.as_dict", ("recursive=False",), None),
        ("common.types", "Row.as_dict", ("recursive=",), None),
        ("common.types", "Row.as_dict", ("recursive",), None),
        (
            "common.types",
            "Row.as_dict",
            ("recursive=True",),
            "its parameters are (recursive=False)",
        ),
        ("common.types", "Row.as_dict", ("deep=",), "its parameters are (recursive=False)"),
        ("common.types", "Row.as_dict", ("recursive=", "more"), "its parameters are "),
        ("common.types", "Row.no_such_method", (), "it is not there"),
        ("common.types", "RowKind.__lt__", None, "it is not there"),
        ("common.types", "RowKind.INSERT", None, None),
        ("common.types", "RowKind.INSERT", (), "it cannot be called"),
        ("common.time", "Duration.of_days", ("days",), None),
        ("common.time", "Duration.of_days", ("days=",), "its parameters are (days)"),
        ("common.configuration", "Configuration.set_string", ("key",), "its parameters are "),
        ("common.no_such_module", "Row", None, "there is no such module"),
        ("datastream.connectors", "PulsarSource", None, "it is not there"),
    ],
)
def test_differences_are_seen(
    module: str, path: str, parameters: tuple[str, ...] | None, wrong: str | None
) -> None:
    found = difference(Name(module, path, parameters))
    assert found == wrong or (found and wrong and found.startswith(wrong))


@pytest.mark.parametrize(
    ("module", "path", "result", "wrong"),
    [
        ("common.configuration", "Configuration.to_dict", "Dict[str, str]", None),
        ("common.configuration", "Configuration.to_dict", "List[str]", "it returns dict[str, str]"),
        ("common.configuration", "Configuration.to_dict", "Optional[dict]", None),
        ("common.configuration", "Configuration.set_string", "'Configuration'", None),
        ("datastream.data_stream", "KeyedStream.disable_chaining", "DataStream", None),
        ("datastream.data_stream", "DataStream.disable_chaining", "KeyedStream", "it returns "),
        ("datastream.functions", "RuntimeContext.get_task_name", "Union[int, str]", None),
        ("datastream.functions", "RuntimeContext.get_task_name", "int | None", "it returns str"),
        ("datastream.window", "GlobalWindows.assign_windows", "Collection[GlobalWindow]", None),
    ],
)
def test_results_are_compared(module: str, path: str, result: str, wrong: str | None) -> None:
    found = difference(Name(module, path, None, result))
    assert found == wrong or (found and wrong and found.startswith(wrong))


@pytest.mark.parametrize(
    ("module", "path", "parameters", "wrong"),
    [
        ("common.types", "Row.as_dict", ("recursive=True",), None),
        ("common.types", "Row.as_dict", ("deep=True",), "a call is refused: got an unexpected"),
        ("common.types", "Row.as_dict", ("recursive", "more"), "a call is refused: got an unexpec"),
        ("common.types", "Row.of_kind", ("row_kind", "*args", "**kwargs"), None),
        ("common.time", "Duration.of_days", ("days=1",), "a call is refused: missing a required"),
        ("common.types", "RowKind.INSERT", None, None),
        ("common.types", "Row.no_such_method", (), "it is not there"),
        ("common.no_such_module", "Row", None, "there is no such module"),
    ],
)
def test_calls_of_pyflink_are_bound_to_ours(
    module: str, path: str, parameters: tuple[str, ...] | None, wrong: str | None
) -> None:
    found = comparison.refused_call(Name(module, path, parameters))
    assert found == wrong or (found and wrong and found.startswith(wrong))


def test_what_is_missing_does_not_take_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(comparison.reasons())
    missing = next(name for name in comparison.names() if difference(name) == "it is not there")
    key = comparison.reason_of(missing)
    assert key is not None
    monkeypatch.setattr(comparison, "reasons", lambda: {**known, key: "otherwise: it is there"})
    assert any("'otherwise' in tests/pyflink" in each for each in comparison.compare())


def test_values_of_enumerations_are_compared() -> None:
    def wrong(value: str) -> str | None:
        return difference(Name("datastream.time_domain", "TimeDomain.EVENT_TIME", None, "", value))

    assert wrong("0") is None
    assert wrong("1") == "its value is 0"
    listed = {name.path: name.value for name in comparison.names() if name.value}
    assert listed["TimeDomain.PROCESSING_TIME"] == "1"
    assert listed["TriggerResult.FIRE"] == "(True, False)"
    results = {name.path: name.result for name in comparison.names() if name.result}
    assert results["DataStream.connect"].startswith("ConnectedStreams | BroadcastConnectedStream")


def test_the_line_of_a_class_explains_members_only_where_the_class_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "common.types"
    lines = {
        (module, "Row"): "not yet: x",
        (module, "*"): "not yet: x",
        ("gone", "*"): "not yet: x",
    }
    monkeypatch.setattr(comparison, "reasons", lambda: lines)
    assert comparison.reason_of(Name(module, "Row.no_such_method", ())) is None
    lines[module, "Rows"] = "not yet: x"
    assert comparison.reason_of(Name(module, "Rows.of", ())) == (module, "Rows")
    assert comparison.reason_of(Name("gone", "Rows.of", ())) == ("gone", "*")


def test_a_wrong_reason_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(comparison.reasons())
    explained = next(key for key in known if key[1] != "*")
    wrong = {**known, ("common.types", "Row"): "because", ("common.types", "Rows"): "not yet: x"}
    del wrong[explained]
    monkeypatch.setattr(comparison, "reasons", lambda: wrong)
    found = "\n".join(comparison.compare())
    assert "common.types.txt explains Row, which is there" in found
    assert "common.types.txt: the reason of Row begins otherwise" in found
    assert "common.types.txt explains Rows, which is there" in found
    assert f"{explained[0]}: {explained[1]}" in found
