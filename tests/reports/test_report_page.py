"""The page in a real browser: no requests, panels follow the selection, names are shown as text."""

import re

import pytest

pytest.importorskip("bokeh")
api = pytest.importorskip("playwright.sync_api")

from pairity import FairRanker, Report, as_method, audit, sweep  # noqa: E402
from pairity.reports.prose import quote, violation  # noqa: E402
from support import browsers  # noqa: E402
from support.report_cases import HOSTILE, make_evidence, trained  # noqa: E402

# Bokeh logs this when a chart is complete.
EXPECTED = ("document idle",)


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as playwright:
        chromium = browsers.launch(playwright)
        if chromium is None:
            pytest.skip(browsers.NOT_INSTALLED)
        yield chromium
        chromium.close()


class Page:
    """An open report, with its console messages and requests."""

    def __init__(self, browser, path, **options):
        self.messages, self.requests = [], []
        self.context = browser.new_context(
            **{"viewport": {"width": 1200, "height": 900}, **options}
        )
        page = self.page = self.context.new_page()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", lambda dialog: self.messages.append(f"dialog: {dialog.message}"))
        self.context.route("**/*", self._allow_files)
        page.goto(path.as_uri())
        page.wait_for_selector("html.drawn", state="attached", timeout=30_000)

    def _on_console(self, message):
        if not any(words in message.text for words in EXPECTED):
            self.messages.append(f"{message.type}: {message.text}")

    def _allow_files(self, route):
        if route.request.url.startswith("file:"):
            route.continue_()
        else:
            route.abort()

    def text(self, section):
        return self.page.locator(f"#{section}").inner_text()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    Report(make_evidence()).save(path)
    return path


SOURCES = """Bokeh.documents.flatMap(document => document.roots())
  .flatMap(figure => figure.renderers).map(renderer => renderer.data_source)"""


def point_on_screen(page, candidate):
    """Where the chart draws a ranker."""
    page.locator("#chart-frontier").scroll_into_view_if_needed()
    return page.evaluate(
        f"""candidate => {{
          const views = Bokeh.index.roots ?? Object.values(Bokeh.index);
          const view = [...views].find(view => view.model.name === "frontier");
          const source = {SOURCES}.find(source => source.name === "frontier");
          const box = view.el.getBoundingClientRect();
          return [box.x + view.frame.x_scale.compute(source.data.x[candidate]),
                  box.y + view.frame.y_scale.compute(source.data.y[candidate])];
        }}""",
        candidate,
    )


DRAWN = f"""() => Object.fromEntries({SOURCES}
  .filter(source => source.name && source.name !== "frontier")
  .map(source => [source.name, JSON.stringify(source.data)]))"""
PANELS = ("summary", "groups", "weights", "rankings", "exposure", "caveats")


def test_the_page_opens_without_messages_or_requests(browser, written):
    path = written
    assert path.stat().st_size < 5_000_000
    with Page(browser, path) as opened:
        assert opened.messages == []
        assert opened.requests == [path.as_uri()]
        page = opened.page
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.locator("h1").count() == 1
        assert page.locator("main h2").all_inner_texts() == [
            "Summary", "Comparison by group", "Accuracy and disparity", "Pair weights",
            "Example rankings", "Exposure by group", "Caveats", "Reproduce this report",
        ]  # fmt: skip
        for name in ("frontier", "positions", "histogram", "rounds"):
            assert page.locator(f"#chart-{name} svg").count() >= 1, name
        unnamed = page.evaluate(
            "[...document.querySelectorAll('main table')].filter(t => !t.caption).length"
        )
        assert unnamed == 0


def test_styles_of_bokeh_are_adopted_as_sheets(browser, written):
    """Fails when Bokeh adds styles in a way that static/styles.js does not handle."""
    with Page(browser, written) as opened:
        sheets, elements = opened.page.evaluate(
            """() => {
              const roots = [], visit = root => {
                for (const element of root.querySelectorAll("*")) {
                  if (!element.shadowRoot) continue;
                  roots.push(element.shadowRoot);
                  visit(element.shadowRoot);
                }
              };
              visit(document.getElementById("chart-frontier"));
              const sheets = roots.flatMap(root => root.adoptedStyleSheets);
              return [sheets.filter(sheet => sheet.cssRules.length).length,
                      roots.flatMap(root => [...root.querySelectorAll("style")]).length];
            }"""
        )
        assert sheets > 0
        assert elements == 0


def test_a_click_on_a_point_changes_every_panel(browser, written):
    with Page(browser, written) as opened:
        page = opened.page
        assert "‘\u2068reweighted\u2069’" in opened.text("summary")
        before = {name: opened.text(name) for name in PANELS}
        drawn = page.evaluate(DRAWN)
        assert set(drawn) == {"positions-0", "positions-1", "histogram-after", "chosen"}
        page.mouse.click(*point_on_screen(page, 1))
        page.wait_for_function("document.getElementById('candidate').value === '1'")
        after = {name: opened.text(name) for name in PANELS}
        assert "50 % of the way" in after["summary"]
        assert all(before[name] != after[name] for name in PANELS)
        assert page.locator("#candidate-1").is_checked()
        assert page.locator("#status").inner_text() == "Showing 50 % of the way"
        assert all(drawn[name] != data for name, data in page.evaluate(DRAWN).items())
        assert opened.messages == []


def test_hovering_shows_the_numbers(browser, written):
    evidence = make_evidence()
    with Page(browser, written) as opened:
        page = opened.page
        x, y = point_on_screen(page, 1)
        page.mouse.move(x - 3, y)
        page.mouse.move(x, y)
        text = violation(evidence.candidates[1], "inter")
        assert "noise floor" in text
        page.get_by_text(text, exact=True).wait_for()
        assert opened.messages == []


def test_the_keyboard_selects_rankers(browser, written):
    with Page(browser, written) as opened:
        page = opened.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the summary"
        page.locator("#candidate-2").focus()
        page.keyboard.press("ArrowUp")
        assert "50 % of the way" in opened.text("summary")
        page.locator("select#candidate").focus()
        page.keyboard.press("ArrowUp")
        assert "Select another ranker" in opened.text("summary")
        ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle !== 'none'")
        assert ring


def test_a_query_can_be_selected(browser, written):
    evidence = make_evidence()
    with Page(browser, written) as opened:
        page = opened.page
        assert page.locator("#query option").count() == len(evidence.queries)
        first = opened.text("rankings")
        page.locator("#query").select_option("3")
        assert opened.text("rankings") != first
        after = evidence.candidates[evidence.after]
        shown = page.locator("#rankings .column:visible").nth(1).locator("tbody tr")
        assert shown.count() == len(after.tops[3])
        names = [row.split("\t")[1] for row in shown.all_inner_texts()]
        assert names == [evidence.queries[3].items[index].name for index in after.tops[3]]
        page.locator("select#candidate").select_option("1")  # the query stays
        middle = evidence.candidates[1]
        names = [row.split("\t")[1] for row in shown.all_inner_texts()]
        assert names == [evidence.queries[3].items[index].name for index in middle.tops[3]]


def test_hostile_names_are_text(browser, tmp_path):
    evidence = make_evidence(HOSTILE, title="</title><script>alert(2)</script>")
    path = tmp_path / "report.html"
    Report(evidence).save(path)
    assert path.stat().st_size < 5_000_000
    with Page(browser, path, viewport={"width": 375, "height": 700}) as opened:
        page = opened.page
        page.locator("#candidate-0").check()
        page.mouse.click(*point_on_screen(page, 1))
        assert opened.messages == []
        assert opened.requests == [path.as_uri()]
        assert page.locator("script").count() == 4
        assert page.locator("img").count() == 0
        page.locator("details summary").first.click()
        names = page.locator(".groups .full-name").all_text_contents()
        assert sorted(names) == sorted(evidence.groups)
        assert "<script>alert(1)</s…" in page.locator("#groups").inner_text()
        assert page.locator("h1").inner_text() == evidence.title
        assert page.evaluate("document.documentElement.scrollWidth") <= 375


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_dark_and_paper(browser, written, scheme):
    with Page(browser, written, color_scheme=scheme) as opened:
        page = opened.page
        ground, ink = page.evaluate(
            "(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))"
        )
        bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in (ground, ink)]
        assert (
            (bright[0] > 200 and bright[1] < 60)
            if scheme == "light"
            else (bright[0] < 60 and bright[1] > 200)
        )
        label = page.evaluate("Bokeh.documents[0].roots()[0].left[0].axis_label_text_color")
        assert label == ("#3d444d" if scheme == "light" else "#c9ced6")
        paper = page.pdf(format="A4")
        assert paper.startswith(b"%PDF")
        assert 2 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 12


def test_the_page_fits_a_phone(browser, written):
    options = {"viewport": {"width": 375, "height": 700}, "has_touch": True, "is_mobile": True}
    with Page(browser, written, **options) as opened:
        page = opened.page
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        names = page.locator("#exposure tbody th >> visible=true").all()
        assert all(name.bounding_box()["width"] >= 90 for name in names)  # words are not cut up
        page.touchscreen.tap(*point_on_screen(page, 1))
        page.wait_for_function("document.getElementById('candidate').value === '1'")
        assert opened.messages == []


def test_a_report_of_audits_alone(browser, tmp_path):
    train, test, plain, fair = trained()
    audits = [
        audit(test, model.predict(test.X), name=name, n_resamples=50)
        for name, model in (("plain", plain), ("reweighted", fair))
    ]
    curve = sweep(
        [as_method(FairRanker(progress=False), tolerance=t) for t in (0.1, 0.2)],
        train, test, n_resamples=50, progress=False,
    )  # fmt: skip
    path = tmp_path / "audits.html"
    Report(audits, frontier=curve).save(path)
    with Page(browser, path) as opened:
        assert opened.messages == []
        opened.page.locator("#candidate-3").check()
        assert "only its estimates are available" in opened.text("groups")
        assert quote("reweighted, tolerance=0.2") in opened.text("summary")
