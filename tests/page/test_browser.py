"""A walk through the page in a real browser, headless Chromium; skipped, and said so, where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from latflow.data.midi import read_midi

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no Chromium here: apt-get install chromium chromium-driver"
)


class Page:
    """What a person does and sees."""

    def __init__(self, browser: Any, address: str, downloads: Path):
        self.browser, self.address, self.downloads = browser, address, downloads

    def open(self, fragment: str = "") -> None:
        self.browser.get("about:blank")
        self.browser.get(self.address + fragment)
        self.until(lambda: self.js("return document.body?.dataset.ready === 'true'"))

    def js(self, script: str, *values: Any) -> Any:
        return self.browser.execute_script(script, *values)

    def until(self, condition: Callable[[], Any]) -> Any:
        return WebDriverWait(self.browser, 60, 0.05).until(lambda _: condition())

    def find(self, selector: str) -> Any:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        return self.js(
            "return Array.from(document.querySelectorAll(arguments[0]), (one) => one.textContent)", selector
        )

    def coloured(self, n: int) -> list[str]:
        """The surprise of n symbols, once all are there."""
        place = "#text-symbols [data-bits]"
        self.until(
            lambda: len(self.texts(place)) == n and self.js("return !document.querySelector('.stale')")
        )
        return self.js(f"return Array.from(document.querySelectorAll('{place}'), (one) => one.dataset.bits)")

    def notes(self) -> str:
        """What is on the roll, as it goes into the address once it is the user's."""
        return self.js("return import('/static/music.js').then((m) => m.shownPiece())")

    def said(self) -> list[str]:
        return [line["message"] for line in self.browser.get_log("browser") if line["level"] == "SEVERE"]


@pytest.fixture(scope="module")
def page(port, tmp_path_factory) -> Iterator[Page]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
        "--mute-audio",
    ):
        options.add_argument(word)
    downloads = tmp_path_factory.mktemp("downloads")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Page(browser, f"http://127.0.0.1:{port}/", downloads)
    finally:
        browser.quit()


@pytest.fixture(autouse=True)
def _no_complaints(page):
    """Nothing that the browser complains of: errors of scripts, what the policy refuses, files that are missing."""
    yield
    assert page.said() == []


def test_text_is_typed_looked_at_continued_and_shared(page):
    page.open("#tab=text&model=pydoc")
    box = page.find("#text-input")
    box.send_keys("The value of ")
    before = page.coloured(13)
    box.send_keys("th")
    after = page.coloured(15)
    assert all(float(bits) >= 0 for bits in before + after)
    assert float(after[0]) == pytest.approx(float(before[0]), abs=0.5)  # p(T | T > n) has hardly changed
    symbols = page.browser.find_elements(By.CSS_SELECTOR, "#text-symbols button")
    assert len(symbols) == 16  # and a dot for what comes next
    symbols[15].click()
    page.until(lambda: page.texts("#next-bars .symbol"))
    assert page.texts("#next-bars .symbol")[0] == "e"
    symbols[4].click()
    page.until(lambda: page.texts("#next-bars .here .symbol") == ["v"])
    # by keyboard as well: the next symbol, and look
    symbols[4].send_keys(Keys.ARROW_RIGHT)
    page.browser.switch_to.active_element.send_keys(Keys.ENTER)
    page.until(lambda: page.texts("#next-bars .here .symbol") == ["a"])

    page.find("#text-seed").clear()
    page.find("#text-seed").send_keys("7")
    page.find("#text-continue").click()
    drawn = page.until(lambda: page.texts("#text-results .drawn"))
    assert len(drawn) == 3
    assert all(text.startswith("The value of th") for text in drawn)
    shared = page.browser.current_url
    page.open()
    page.until(lambda: page.texts("#text-results .drawn") == [])
    page.open(shared.partition("/#")[2].join(["#", ""]))
    assert page.until(lambda: page.texts("#text-results .drawn")) == drawn
    page.until(lambda: page.texts("#next-bars .here .symbol") == ["a"])


def test_gaps_are_filled_and_mistakes_are_said(page):
    page.open("#tab=text&model=pydoc&text=Return+???+value.&n=1&particles=50")
    page.coloured(17)
    page.find("#text-fill").click()
    (drawn,) = page.until(lambda: page.texts("#text-results .drawn"))
    assert (drawn[:7], drawn[10:]) == ("Return ", " value.")
    page.find("#text-input").send_keys("é")
    page.until(lambda: "is not among the 90 of this data" in page.find("#alert").text)
    page.browser.get_log("browser")  # the browser notes the refusal, which was meant


def test_a_density_is_drawn(page):
    page.open("#tab=text&model=pydoc-2d&text=The+class+of+an+object.&at=16")
    page.until(lambda: page.find("#density").is_displayed())
    blue = page.js(
        "const c = document.getElementById('density-canvas');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "let n = 0; for (let i = 0; i < d.length; i += 4) n += d[i + 2] > d[i] + 40; return n / (d.length / 4);"
    )
    assert 0.01 < blue < 0.9
    assert page.find("#text-continue").is_enabled()  # also where the emission looks at all of z


def test_notes_are_drawn_harmonised_played_saved_and_shared(page, tmp_path):
    page.open("#tab=music&model=jsb&steps=4&tempo=240")
    roll = page.find("#roll-notes")
    cell = page.js("return document.getElementById('roll-notes').clientWidth / 4")
    # by mouse: the first two steps of a row that is in view
    box = page.js(
        "const b = document.getElementById('roll').getBoundingClientRect(),"
        "n = document.getElementById('roll-notes').getBoundingClientRect();"
        "return [n.left + 1, b.top + 150]"
    )
    mouse = ActionChains(page.browser)
    mouse.w3c_actions.pointer_action.move_to_location(int(box[0] + cell / 2), int(box[1]))
    mouse.click_and_hold().move_by_offset(int(cell), 0).release().perform()
    page.until(lambda: "l0-2" in page.browser.current_url)
    # by keyboard: the third step, one note higher, then the fourth
    roll.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.SPACE, Keys.ARROW_RIGHT, Keys.SPACE)
    page.until(lambda: "l2-2" in page.browser.current_url)
    assert "sounds, locked" in page.find("#roll-here").text
    page.until(lambda: page.js("return document.getElementById('roll-surprise').dataset.steps") == "4")
    melody = page.notes()

    page.find("#music-harmonise").click()
    page.until(lambda: page.notes() != melody)
    found = page.notes()
    assert set(melody.split(".")) <= set(found.split("."))
    assert "f" in found

    page.find("#music-play").click()
    page.until(lambda: page.js("return window.latflow.player.state") == "running")
    page.until(lambda: page.js("return window.latflow.player.level()") > 0.01)
    assert page.find("#music-play").text == "Stop"
    page.until(lambda: page.find("#music-play").text == "Play")  # it ends by itself

    for name in ("mid", "wav"):
        page.find(f"#music-{name}").click()
        page.until(lambda path=page.downloads / f"latflow.{name}": path.is_file() and path.stat().st_size)
    saved = read_midi(page.downloads / "latflow.mid", 1)
    assert saved.shape == (4, 88)
    assert (page.downloads / "latflow.wav").read_bytes()[:4] == b"RIFF"

    shared = page.browser.current_url
    page.open("#tab=text")
    page.open("#" + shared.partition("#")[2])
    page.until(lambda: page.notes() == found)

    page.find("#music-clear").click()
    page.until(lambda: page.notes() == "")
    page.find("#music-file").send_keys(str(page.downloads / "latflow.mid"))
    page.until(lambda: page.notes() == found.replace("f", "l") or (page.notes() and "f" not in page.notes()))


def test_a_long_job_is_cancelled(page):
    page.open("#tab=music&model=jsb&steps=200")
    page.find("#music-sample").click()
    page.until(lambda: " of 200" in page.find("#status-words").text)
    page.find("#status-cancel").click()
    page.until(lambda: "cancelled" in page.find("#status-words").text)
    assert page.find("#music-sample").is_enabled()
    assert page.notes() == ""


def test_runs_are_watched_and_sampled(page):
    page.open("#tab=runs")
    page.until(lambda: page.texts(".card h2") == ["own-run"])
    page.until(lambda: "epochs" in page.find(".card p:not(:empty):last-of-type").text)
    page.find(".card button").click()
    assert page.until(lambda: page.texts(".samples li"))


def test_a_phone_needs_no_sideways_scrolling(page):
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        for tab in ("text", "music", "runs"):
            page.open(f"#tab={tab}")
            wide, seen = page.js("return [document.documentElement.scrollWidth, window.innerWidth]")
            assert wide <= seen == 390
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_everything_has_a_name_for_those_who_listen(page):
    """Every control in each part has a label, by its text, a label or an aria-label."""
    page.open()
    unnamed = page.js(
        "return Array.from(document.querySelectorAll('button, input, select, textarea, canvas, progress, [role]'))"
        ".filter((one) => one.getAttribute('aria-hidden') !== 'true' && !one.labels?.length && !one.textContent.trim()"
        " && !one.getAttribute('aria-label') && !one.getAttribute('aria-labelledby') && !one.getAttribute('aria-live')"
        " && one.getAttribute('role') !== 'alert').map((one) => one.id || one.outerHTML)"
    )
    assert [name for name in unnamed if name not in ("density-canvas",)] == []  # named when it is drawn
