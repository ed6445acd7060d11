"""The web UI in Chromium, with the example answers of a job in trouble."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.ui.browser import DESKTOP, PHONE
from tests.ui.example_answers import JOB, KEYED, answer
from tests.ui.example_server import JOB_PAGE, ExampleServer

if TYPE_CHECKING:
    from tests.ui.browser import Browser

pytestmark = pytest.mark.extended

#: Address -> texts that are on the page.
PAGES = {
    "#/jobs": ["orders-revenue", "Restarting", "nightly-import", "2 jobs running"],
    JOB_PAGE: [
        "Source: orders",
        "backpressured 74 %",
        "holds up the tasks before it",
        "one subtask has 2.6 times the mean",
        "3 failed",
        "watermark lag 1 min 3",
    ],
    f"{JOB_PAGE}/tasks/{KEYED}": ["Skewed", "66 %", "1,020,000", "shop/orders.py:74", "I,UB,UA"],
    f"{JOB_PAGE}/checkpoints": ["Completed", "savepoint", "have not acknowledged within 2 min"],
    f"{JOB_PAGE}/checkpoints/417": ["Checkpoint 417", "1.2 s", "7 of 9", "exactly once"],
    f"{JOB_PAGE}/exceptions": ["amount is negative", "shop/orders.py:38", "worker-2:41001"],
    f"{JOB_PAGE}/state": ["join orders with prices", "734 MB", "93 %"],
    f"{JOB_PAGE}/sources": ["orders", "301,200", "431 k", "401,990"],
    f"{JOB_PAGE}/plan": ["[I,UB,UA,D]", "GroupAggregate", "exactly-once", "keys: customer"],
    f"{JOB_PAGE}/configuration": ["state.backend.type", "rocksdb", "******", "PIPELINED"],
    f"{JOB_PAGE}/logs": ["driver: driver.log", "amount is negative", "checkpoint 410"],
}
_MODES = {
    "desktop": (DESKTOP, False),
    "desktop dark": (DESKTOP, True),
    "phone": (PHONE, False),
    "phone dark": (PHONE, True),
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", _MODES)
def test_pages_show_what_the_answers_say(
    browser: Browser, example: ExampleServer, mode: str
) -> None:
    size, dark = _MODES[mode]
    for address, texts in PAGES.items():
        browser.open(example.url + address, size=size, dark=dark)
        for text in texts:
            browser.wait_for(text)
        assert browser.problems() == [], address
        assert browser.hosts() <= {example.url.rstrip("/")}, address
        assert _overflowing(browser) == [], (address, mode)
        assert _illegible(browser) == [], (address, mode)


def _overflowing(browser: Browser) -> list[str]:
    """Return elements that make the page wider than the window."""
    found: list[str] = browser.run("""
      const width = document.documentElement.clientWidth;
      if (document.documentElement.scrollWidth <= width) return [];
      return [...document.querySelectorAll('body *')]
        .filter(e => e.getBoundingClientRect().right > width + 1)
        .filter(e => !e.closest('.scroll, .graph-scroll, pre, nav'))
        .map(e => e.outerHTML.slice(0, 120));
    """)
    return found


_COLOURS = """
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const found = getComputedStyle(e).backgroundColor;
      if (!/, 0\\)$/.test(found) && found !== 'transparent') return found;
    }
    return 'rgb(255, 255, 255)';
  };
  const seen = new Map();
  for (const e of document.querySelectorAll('#main *, #top *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || !e.getClientRects().length) continue;
    const pair = [getComputedStyle(e).color, ground(e)];
    seen.set(pair.join('/'), [...pair, e.textContent.trim().slice(0, 40)]);
  }
  return [...seen.values()];
"""


def _illegible(browser: Browser) -> list[str]:
    """Return texts with less contrast than WCAG 2 AA asks for."""
    return [
        f"{text!r}: {front} on {back}, {_contrast(front, back):.2f}"
        for front, back, text in browser.run(_COLOURS)
        if _contrast(front, back) < 4.5
    ]


def _contrast(front: str, back: str) -> float:
    first, second = sorted((_luminance(front), _luminance(back)), reverse=True)
    return (first + 0.05) / (second + 0.05)


def _luminance(colour: str) -> float:
    name, _, rest = colour.partition("(")
    if name == "color":  # color(srgb r g b)
        red, green, blue = (float(each) for each in rest.strip(")").split()[1:4])
    else:
        red, green, blue = (float(each) / 255 for each in rest.strip(")").split(",")[:3])
    parts = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_updates_keep_focus_and_what_is_open(browser: Browser, example: ExampleServer) -> None:
    browser.open(example.url + f"{JOB_PAGE}/exceptions")
    browser.wait_for("Traceback")
    browser.run("document.querySelector('details').open = false")
    browser.run("document.querySelector('summary').focus(); window.mine = document.activeElement")
    before = browser.run("return performance.getEntriesByType('resource').length")
    browser.until(
        lambda: browser.run("return performance.getEntriesByType('resource').length") > before + 20,
        "the page does not poll",
    )
    assert browser.run("return document.activeElement === window.mine")
    assert not browser.run("return document.querySelector('details').open")


def test_a_driver_that_dies_is_said_to_and_found_again(browser: Browser) -> None:
    with ExampleServer() as server:
        port = server.port
        browser.open(server.url + JOB_PAGE)
        browser.wait_for("Source: orders")
    browser.wait_for("The driver does not answer.")
    assert "What you see is of" in browser.text()
    assert "Source: orders" in browser.text()
    with ExampleServer(port):
        browser.until(
            lambda: "does not answer" not in browser.text(), "the server is not found again"
        )


def test_jobs_are_reached_by_keyboard(browser: Browser, example: ExampleServer) -> None:
    browser.open(example.url + JOB_PAGE)
    browser.wait_for("Source: orders")
    script = """
      return [...document.querySelectorAll('a[href], button, input, summary, [tabindex="0"]')]
        .filter(e => e.getClientRects().length)
        .map(e => (e.getAttribute('aria-label') || e.textContent).trim());
    """
    order = browser.run(script)
    assert "" not in order
    at = [order.index(text) for text in ("Savepoint", "Overview", "Job graph")]
    assert at == sorted(at)
    assert any("busy 93 %" in text for text in order)


@pytest.mark.parametrize(
    ("button", "confirm", "expected"),
    [
        ("Savepoint", "Take savepoint", ("POST", f"/jobs/{JOB}/savepoints")),
        ("Stop", "Stop job", ("POST", f"/jobs/{JOB}/stop")),
        ("Cancel", "Cancel job", ("PATCH", f"/jobs/{JOB}?mode=cancel")),
    ],
)
def test_actions_ask_before_they_act(
    browser: Browser, example: ExampleServer, button: str, confirm: str, expected: tuple[str, str]
) -> None:
    browser.open(example.url + JOB_PAGE)
    browser.wait_for("Savepoint")
    _press(browser, button)
    browser.wait_for("“orders-revenue”?")
    assert browser.run("return document.activeElement.textContent") == "Back"
    assert example.sent == []
    _press(browser, confirm)
    browser.until(lambda: example.sent, "nothing was sent")
    assert [each[:2] for each in example.sent] == [expected]
    done = "is cancelling" if button == "Cancel" else "/savepoints/savepoint-5c1bf3-9a"
    browser.wait_for(done)
    assert browser.problems() == []


def _press(browser: Browser, name: str) -> None:
    browser.run(
        "const all = [...document.querySelectorAll('button')];"
        "all.findLast(b => b.textContent === arguments[0]).click()",
        name,
    )


def test_a_token_is_asked_for_and_kept_out_of_the_address(browser: Browser) -> None:
    with ExampleServer(token="s3cret") as server:
        browser.open(server.url + JOB_PAGE)
        browser.wait_for("asks for a token")
        browser.open(server.url + "#token=s3cret&/jobs")
        browser.wait_for("orders-revenue")
        assert browser.run("return location.hash") == "#/jobs"
        assert browser.problems() == []
        browser.run("sessionStorage.clear()")


def test_text_of_jobs_is_not_taken_for_html(
    browser: Browser, example: ExampleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def altered(path: str, query: dict[str, str]) -> object:
        found = answer(path, query)
        if path == "/jobs/overview":
            found["jobs"][0]["name"] = "<img src=x onerror=alert(1)>"
        return found

    monkeypatch.setattr("tests.ui.example_server.answer", altered)
    browser.open(example.url)
    browser.wait_for("<img src=x onerror=alert(1)>")
    assert browser.problems() == []


def test_contrast_is_computed_as_wcag_does() -> None:
    assert _contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert _contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") == pytest.approx(4.48, abs=0.01)
