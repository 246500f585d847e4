"""Pages of the built site in a real browser, wide and narrow: nothing is cut, and no text lies over other text.

`make docs-look` builds the site and runs this. Screenshots are in build/look.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api")

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "docs"
SHOTS = ROOT / "build" / "look"
PAGES = [
    "index", "which-method", "tutorial", "benchmarks", "experiments", "claims", "troubleshooting", "semantics",
    "howto/after-a-death", "api/partial-allreduce",
]  # fmt: skip
WIDTHS = {1280: 900, 390: 844}
CUT = """() => {
  const shown = (e) => e.offsetParent !== null && getComputedStyle(e).visibility !== 'hidden';
  const scrolls = (e) => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
  const found = [];
  for (const e of document.querySelectorAll('pre, table, img, svg')) {
    if (!shown(e)) continue;
    let box = e;
    while (box !== document.body && !scrolls(box)) box = box.parentElement;
    const edge = box === document.body ? document.documentElement.clientWidth : box.getBoundingClientRect().right;
    const is_cut = box === document.body && e.getBoundingClientRect().right > edge + 1;
    if (is_cut) found.push(e.tagName + ': ' + e.textContent.trim().slice(0, 60));
  }
  if (document.documentElement.scrollWidth > document.documentElement.clientWidth + 1) found.push('the page scrolls');
  return found;
}"""
"""Tables, code and pictures that end beyond the page, and are in no box that scrolls."""
OVER = """() => {
  const lines = [];
  const walker = document.createTreeWalker(document.querySelector('[role=main], main, article'), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.offsetParent === null || getComputedStyle(parent).visibility === 'hidden') continue;
    if (parent.closest('script, style, svg, .headerlink, .copybtn, button')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      if (r.width > 2 && r.height > 2) lines.push({r, text: node.data.trim().slice(0, 40), node});
    }
  }
  lines.sort((a, b) => a.r.top - b.r.top);
  const found = [];
  for (let i = 0; i < lines.length; i++) {
    for (let j = i + 1; j < lines.length && lines[j].r.top < lines[i].r.bottom; j++) {
      const [a, b] = [lines[i].r, lines[j].r];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 2 && high > Math.min(a.height, b.height) / 2) found.push(lines[i].text + ' / ' + lines[j].text);
    }
  }
  return found;
}"""
"""Pairs of lines of text, one over the other by more than half its height."""


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.fail("needs a Chromium of the distribution: apt-get install chromium")
    with playwright.sync_playwright() as running:
        made = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(params=WIDTHS)
def window(request, browser):
    page = browser.new_page(viewport={"width": request.param, "height": WIDTHS[request.param]})
    page.route("http*://**", lambda route: route.abort())  # the site needs nothing from the network
    yield page
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_and_no_text_overlaps(window, name):
    window.goto((SITE / f"{name}.html").as_uri())
    SHOTS.mkdir(parents=True, exist_ok=True)
    shot = SHOTS / f"{name.replace('/', '-')}-{window.viewport_size['width']}.png"
    window.screenshot(path=shot, full_page=True)
    assert window.evaluate(CUT) == [], shot
    assert window.evaluate(OVER) == [], shot


def test_what_is_cut_is_found(window):
    window.set_content("<main><pre style='width: 3000px'>wide</pre></main>")
    assert window.evaluate(CUT) == ["PRE: wide", "the page scrolls"]
    window.set_content("<main><div style='overflow-x: auto'><pre style='width: 3000px'>wide</pre></div></main>")
    assert window.evaluate(CUT) == []


def test_text_that_overlaps_is_found(window):
    window.set_content("<main><p>one line</p><p style='margin-top: -2em'>another</p></main>")
    assert window.evaluate(OVER) == ["one line / another"]
    window.set_content("<main><p>one line</p><p>another</p></main>")
    assert window.evaluate(OVER) == []
