"""The documentation as a site: no warnings, no missing page, nothing from the network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.support.browser import Browser, find_browser

REPOSITORY = Path(__file__).parents[2]
PICTURES = [
    path for path in (REPOSITORY / "docs").rglob("*") if path.suffix in (".png", ".svg", ".jpg")
]
# What a browser loads with the page; links that a reader may follow are not meant.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(?:https?:)?//"
    r"|<link[^>]*\srel=[\"']?(?:stylesheet|preconnect|icon|preload)[^>]*\shref=[\"']?(?:https?:)?//"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site. Strict: a page missing in the navigation or a dead link or anchor fails."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=REPOSITORY, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_site_has_every_document(site):
    """Each Markdown file is a page."""
    documents = REPOSITORY / "docs"
    for path in documents.rglob("*.md"):
        assert (site / path.relative_to(documents)).with_suffix(".html").is_file(), path


def test_site_loads_nothing_from_elsewhere(site):
    """No fonts, scripts, styles or pictures of other hosts."""
    pages = list(site.rglob("*.html"))
    assert pages
    for page in pages:
        assert not FETCHED.search(page.read_text(encoding="utf-8")), page


def test_site_shows_the_python_api(site):
    """Docstrings are on the page, with their arguments."""
    text = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert 'id="servetwin.run"' in text
    assert "values by key path" in text


def test_site_is_searched_from_disk(site):
    """A page opened as a file gets its index and the script that stands for a worker."""
    assert (site / "search" / "search_index.js").is_file()
    text = (site / "how-to" / "tune.html").read_text(encoding="utf-8")
    scripts = re.findall(r'<script[^>]*src="([^"]*)"', text)
    assert scripts[0] == "../iframe-worker.js"
    assert (site / "iframe-worker.js").is_file()


def test_search_from_disk_finds_pages(site, tmp_path):
    """In a real browser, which starts no worker for a file."""
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on PATH")
    links = "[...document.querySelectorAll('.md-search-result__link')]"
    with Browser(program, tmp_path) as browser:
        browser.open((site / "how-to" / "tune.html").as_uri() + "?q=retraction")
        browser.wait_for(f"{links}.length")
        found = browser.run(f"{links}.map((one) => one.href.split('/').pop().split('?')[0])")
    assert "sglang.html" in found


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_pictures_are_legible_on_a_dark_page(path):
    """Their ground is their own: text and lines are dark."""
    if path.suffix == ".svg":
        text = path.read_text(encoding="utf-8")
        size = re.search(r'viewBox="0 0 (\d+) (\d+)"', text)
        assert f'<rect width="{size[1]}" height="{size[2]}" rx="8" fill="#ffffff"/>' in text
    else:
        assert Image.open(path).convert("RGBA").getchannel("A").getextrema() == (255, 255)


def anchors(path):
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_beside_the_site_lead_somewhere(name):
    """To a file of the repository, and to a heading that is there."""
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)(?:#([^)]*))?\)", text)
    assert links
    for target, anchor in links:
        assert (REPOSITORY / target).exists(), target
        assert not anchor or anchor in anchors(REPOSITORY / target), f"{target}#{anchor}"


NAMED_PATH = re.compile(
    r"`((?:sim|servetwin|realrun|calibrate|bench|data/(?:traces|measured|layers)|reference|tests|scenarios|oracle)/[\w/.-]+)`"
)


def test_named_files_exist():
    """A file that a document names, as `sim/engine/core.py`, is there."""
    named = [
        (str(document.relative_to(REPOSITORY)), path)
        for document in (*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"))
        if document.name != "CHANGELOG.md"
        for path in NAMED_PATH.findall(document.read_text(encoding="utf-8"))
    ]
    assert len(named) > 200
    assert [each for each in named if not (REPOSITORY / each[1]).exists()] == []


PACKAGES = ("sim", "servetwin", "realrun", "calibrate")


def test_documents_that_code_cites_exist():
    """As `docs/explanation/sglang.md`."""
    cited = [
        (path.relative_to(REPOSITORY).as_posix(), document)
        for folder in (*PACKAGES, "bench", "reference", "tests", "oracle")
        for path in (REPOSITORY / folder).rglob("*.py")
        for document in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8"))
    ]
    assert len(cited) > 100
    assert [each for each in cited if not (REPOSITORY / each[1]).is_file()] == []
