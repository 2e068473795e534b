"""The report's page in a real browser: every figure is laid out, and the console shows no error."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DEADLINE_S = 120
# The script that measures runs in a copy of the page: the page itself allows no scripts.
SCRIPT = """\
<script>
addEventListener("load", () => {
  const images = [...document.images].map((image) => ({
    complete: image.complete, natural: [image.naturalWidth, image.naturalHeight],
    shown: [image.getBoundingClientRect().width, image.getBoundingClientRect().height],
  }));
  const measured = document.createElement("pre");
  measured.id = "measured";
  measured.textContent = JSON.stringify({
    images, page: document.documentElement.scrollWidth, window: innerWidth,
    captions: [...document.querySelectorAll("figcaption")].map((one) => one.offsetHeight),
  });
  document.body.append(measured);
});
</script>
"""


@pytest.fixture
def browse(tmp_path):
    """Open a page at a window size; returns the document, and what the console said."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser on PATH: {', '.join(BROWSERS)}")

    def open_page(path, size):
        done = subprocess.run(
            [found, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             f"--user-data-dir={tmp_path / 'browser'}", f"--window-size={size}",
             "--enable-logging=stderr", "--dump-dom", path.resolve().as_uri()],
            capture_output=True, text=True, timeout=DEADLINE_S, check=True,
        )  # fmt: skip
        return done.stdout, re.findall(r".*:CONSOLE.*", done.stderr)

    return open_page


def test_page_shows_every_figure_at_its_size(simulate, scenario, browse):
    """Decoded, as wide as the window allows, in its proportions; no sideways scrolling; and the
    page itself, whose policy refuses scripts and loading, gives the browser nothing to say.
    """
    simulate("run", scenario, "--out", "out")
    simulate("report", "out")
    page = Path("out/report/index.html")
    document, said = browse(page, "1200,900")
    assert said == []
    assert document.count("<figure") == 2
    text = page.read_text(encoding="utf-8")
    without_policy = re.sub(r'<meta http-equiv="Content-Security-Policy".*>\n', "", text)
    Path("copy.html").write_text(without_policy.replace("</body>", f"{SCRIPT}</body>"))
    for size in ("1200,900", "400,800"):
        document, said = browse(Path("copy.html"), size)
        assert said == []
        assert_laid_out(json.loads(re.search(r'<pre id="measured">(.*?)</pre>', document)[1]))


def assert_laid_out(measured):
    """Two figures, both whole."""
    assert len(measured["images"]) == len(measured["captions"]) == 2
    for image in measured["images"]:
        (natural_width, natural_height), (width, height) = image["natural"], image["shown"]
        assert image["complete"]
        assert natural_width > 700
        assert width > 0.8 * min(measured["window"], 1_100)
        assert height / width == pytest.approx(natural_height / natural_width, rel=0.05)
    assert all(measured["captions"])
    assert measured["page"] <= measured["window"]
