"""The report's page in a real browser: figures and tables answer the reader, and load nothing."""

import re
from pathlib import Path

import pytest

from tests.support.browser import Browser, find_browser

READY = "document.body.dataset.ready"
EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on PATH")
    with Browser(program, tmp_path_factory.mktemp("browser")) as window:
        yield window


@pytest.fixture
def page(simulate, scenario):
    """The page of a run; its author's text would like to be HTML."""
    text = Path(scenario).read_text(encoding="utf-8")
    Path(scenario).write_text(f"{text}report: {{title: '{EVIL}', text: '{EVIL}'}}\n")
    simulate("run", scenario, "--out", "out")
    simulate("report", "out")
    return Path("out/report/index.html").resolve().as_uri()


def opened(browser, page, **window):
    browser.open(page, **window)
    browser.wait_for(READY)
    assert browser.said == []


@pytest.mark.parametrize("window", [{}, {"width": 390, "height": 800}, {"dark": True}])
def test_page_draws_every_figure_inside_the_window(browser, page, window):
    """Nothing is loaded or said; nothing scrolls sideways; the ground is the reader's."""
    opened(browser, page, **window)
    drawn = "document.querySelectorAll('.js-plotly-plot .main-svg').length"
    assert browser.run("document.querySelectorAll('figure').length") == 2
    assert browser.run(drawn) >= browser.run("document.querySelectorAll('.plot').length") == 5
    widths = browser.run("[...document.querySelectorAll('.plot')].map((one) => one.offsetWidth)")
    assert min(widths) > 250
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run("performance.getEntriesByType('resource').length") == 0
    ground = browser.run("document.querySelector('.plot')._fullLayout.paper_bgcolor")
    assert ground == ("#15191e" if "dark" in window else "#ffffff")
    buttons = "[...document.querySelectorAll('.modebar-btn')].map((one) => one.dataset.title)"
    titles = browser.run(buttons)
    assert titles
    assert not any(re.search("share|cloud|edit", title, re.IGNORECASE) for title in titles)


def test_legend_hides_a_line_and_its_marks_in_every_panel(browser, page):
    """Pressed again it comes back; the theme button changes the ground."""
    opened(browser, page)
    count = "document.querySelector('#figure-1 .plot').data.length"
    before = browser.run(count)
    button = "#figure-1 .legend button:nth-child(2)"
    assert browser.run(f"document.querySelector('{button}').textContent") == "hot"
    browser.click(button)
    names = browser.run("document.querySelector('#figure-1 .plot').data.map((one) => one.name)")
    assert "hot" not in names
    assert len(names) < before
    browser.click(button)
    assert browser.run(count) == before
    browser.click("#theme")
    assert browser.run("document.querySelector('.plot')._fullLayout.paper_bgcolor") == "#15191e"


def test_hover_names_line_value_and_axis(browser, page):
    """What the reader sees where the pointer is."""
    opened(browser, page)
    plot = "document.querySelector('#figure-1 .plot')"
    browser.run(f"Plotly.Fx.hover({plot}, [{{curveNumber: 0, pointNumber: 5}}])")
    text = browser.run("document.querySelector('#figure-1 .hoverlayer').textContent")
    assert "all requests" in text
    assert "requests (%)" in text


def test_picture_takes_the_place_of_the_interactive_figure(browser, page):
    """The same picture as the SVG file, as wide as the page."""
    opened(browser, page)
    browser.click("#figure-1 .tools button:nth-child(2)")
    image = "document.querySelector('#figure-1 img')"
    assert browser.run(f"{image}.complete && {image}.naturalWidth > 700")
    assert browser.run(f"{image}.offsetWidth") > 900
    assert browser.run("document.querySelector('#figure-1 .plot').offsetWidth") == 0


def downloaded(browser, selector):
    """The text of the file that a click on a button makes."""
    browser.run("URL.createObjectURL = (blob) => { window.made = blob.text(); return '#'; }")
    browser.click(selector)
    return browser.run("window.made").splitlines()


def test_data_of_a_figure_and_of_a_table_can_be_downloaded(browser, page):
    """A row for each point with its line; the rows of a table that are shown."""
    opened(browser, page)
    rows = downloaded(browser, "#figure-1 .tools button")
    assert rows[0] == "panel,line,x,x value,y,y value,low,high"
    assert {row.split(",")[1] for row in rows[1:]} == {"all requests", "hot", "cold"}
    assert re.fullmatch(r",hot,time to first token \(log scale\),[\d.]+,requests \(%\),0,,", next(
        row for row in rows if row.startswith(",hot")))  # fmt: skip
    table = downloaded(browser, ".tools:has(input) button")
    assert table[0] == "latency,mean,median,p90,p95,p99"
    assert len(table) == 6


def test_table_sorts_by_number_and_filters_by_words(browser, page):
    """Up, down, and back to the order it had; words in any order, capitals or not."""
    opened(browser, page)
    cells = ("[...document.querySelector('table').tBodies[0].rows].filter((row) => !row.hidden)"
             ".map((row) => row.cells[1].textContent)")  # fmt: skip
    first = browser.run(cells)
    orders = []
    for _ in range(3):
        browser.click("table th:nth-child(2)")
        orders.append([float(cell.replace(",", "")) for cell in browser.run(cells)])
    assert orders[0] == sorted(orders[0])
    assert orders[1] == orders[0][::-1]
    assert orders[2] == [float(cell.replace(",", "")) for cell in first]
    browser.run("(() => { const box = document.querySelector('input'); box.value = 'LATENCY end';"
                " box.dispatchEvent(new Event('input')); })()")  # fmt: skip
    assert len(browser.run(cells)) == 1
