"""Reports show what was measured; names and files cannot inject anything."""

import base64
import hashlib
import importlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairity import FairRanker, InterGroup, Queries, Report, as_method, audit, sweep
from pairity._utils.html import escape, name_tag, tag
from pairity.cli import main
from pairity.exceptions import InputError, MissingExtraError, ModelFileError
from pairity.reports.caveats import add_caveats
from pairity.reports.charts import draw
from pairity.reports.collect import Scored, collect, collect_audits
from pairity.reports.evidence import FILE, Evidence
from pairity.reports.merge import merge_evidence
from pairity.reports.observations import Observer, position_shares
from pairity.reports.panels import shown_groups
from pairity.reports.prose import explain, summary, weight_sentences
from pairity.reweighting.persistence import load
from support.report_cases import HOSTILE, evidence, trained

pytest.importorskip("bokeh")


@pytest.fixture(scope="module")
def page():
    return Report(evidence()).to_html()


# --- what was measured ---------------------------------------------------------------------------


def test_changes_are_differences_of_the_audits():
    held = evidence()
    before = held.candidates[held.before]
    for each in held.candidates[1:]:
        for measure, name in (("violation", "inter"), ("auc", None)):
            change = each.change(measure)
            old, new = (which.estimate(measure, name).value for which in (before, each))
            assert change.value == pytest.approx(new - old, abs=1e-12)
            assert change.low <= change.value + 0.1
            assert change.low <= change.high
    assert before.changes == ()


def test_the_gap_of_one_query_is_that_of_the_constraint():
    _, test, plain, _ = trained()
    scores = plain.predict(test.X)
    observer = Observer(test, InterGroup(), "inter", scores, 0.95, 0, 0)
    gaps = observer.gaps(scores)
    for at in range(test.n_queries):
        rows = test.query == at
        delta = InterGroup().delta(test.take([at]), scores[rows])
        alone = delta[0, 1] - delta[1, 0]  # 'men' are the favoured ones
        assert np.isnan(alone) == np.isnan(gaps[at])
        if not np.isnan(alone):
            assert gaps[at] == pytest.approx(alone)
    assert sum(observer.histogram(scores)) == np.count_nonzero(~np.isnan(gaps))


def test_positions_are_shared_out_whole():
    queries = Queries.from_arrays(
        None, [1, 0, 1, 0, 1], qid=[1, 1, 1, 2, 2], sensitive_features=list("aabab")
    )
    # Query 1: rows 0 and 2 tie for rank 1; query 2: row 4 (b) leads.
    shares = position_shares(queries, np.array([2.0, 1.0, 2.0, 0.0, 1.0]))
    assert shares[0].tolist() == [(0.5 + 0) / 2, (0.5 + 1) / 2, 1.0]
    assert np.allclose(shares.sum(axis=0), 1.0)


def test_tops_are_the_order_of_the_scores():
    held = evidence()
    for each in held.candidates:
        for top, scores, query in zip(each.tops, each.scores, held.queries, strict=True):
            assert list(scores) == sorted(scores, reverse=True)
            assert len(top) == min(10, query.n_items)
    first = held.candidates[held.before]
    for top, query in zip(first.tops, held.queries, strict=True):
        assert [query.items[at].rank for at in top] == list(range(1, len(top) + 1))
    gaps = [query.gap for query in held.queries]
    assert gaps == sorted(gaps, reverse=True)


def test_caveats_come_from_facts():
    held = evidence()
    said = " ".join(each.text for each in held.candidates[held.after].caveats)
    assert "Only 24 queries were held out" in said
    assert "‘\u2068gender\u2069’" in said
    assert "Proposition 1" in said
    few = add_caveats(replace(held, n_queries=4, tolerance=0.0001))
    said = " ".join(each.text for each in few.candidates[held.after].caveats)
    assert "too few to rely on any number" in said
    assert "tolerance of 0.0001" in said
    many = add_caveats(replace(held, n_queries=4000, tolerance=0.9, attributes=()))
    said = " ".join(each.text for each in many.candidates[held.after].caveats)
    assert "queries were held out" not in said
    assert "tolerance" not in said


def test_missing_groups_and_small_cells_are_caveats():
    _, test, plain, _ = trained()
    groups = np.array(test["sensitive_features"], dtype=object)
    groups[::3] = None
    part = Queries.from_arrays(
        test.X, test.y, qid=test["qid"], sensitive_features=groups
    ).take(np.arange(6))  # fmt: skip
    held = collect(part, {"plain": plain.predict(part.X)}, n_resamples=20)
    said = " ".join(each.text for each in held.candidates[0].caveats)
    assert "have no known group" in said
    assert "4 of 8 cells" in said or "8 of 8 cells" in said
    assert "✻ few" in Report(held).to_html()


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [0.001, 0.9])
def test_the_tolerance_is_in_sight(tolerance):
    held = replace(evidence(), tolerance=tolerance)
    sight = draw(held)["frontier"]["doc"]["roots"][0]["attributes"]["x_range"]["attributes"]
    assert sight["start"] < tolerance < sight["end"]
    assert "The dashed line is the tolerance" in Report(held).to_html()


def test_the_answer_has_the_figures():
    held = evidence()
    after = held.candidates[held.after]
    first, second = summary(held, after)
    first = "".join(text for text, _ in first)
    for estimate in (after.estimate("violation", "inter"), after.estimate("auc")):
        assert f"{estimate.value:.3f}" in first
        assert f"{estimate.low:.3f} to {estimate.high:.3f}" in first
    assert "24 held-out queries" in first
    assert "100 bootstrap resamples" in second
    assert "men" in explain(held, after)


def test_weights_are_said_as_a_person_would():
    held = evidence()
    weights = ((1.0, 0.4), (1.4, 1.0))
    said = weight_sentences(held, replace(held.candidates[held.after], weights=weights))
    one = "A training pair in which an item of ‘\u2068men\u2069’ was preferred to one of "
    assert said[0] == one + "‘\u2068women\u2069’ counts 0.40 times."
    assert said[-1] == "All other pairs count once."
    plain = replace(held.candidates[0], weights=((1.0, 1.0), (1.0, 1.0)))
    assert weight_sentences(held, plain) == [
        "Every training pair counts once: nothing was reweighted."
    ]


# --- the page ------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """The elements of a page, and what its scripts say."""

    def __init__(self, text):
        super().__init__()
        self.names, self.scripts, self.meta = [], [], []
        self.feed(text)

    def handle_starttag(self, name, attributes):
        self.names.append(name)
        if name == "meta":
            self.meta.append(dict(attributes))
        if name == "script":
            self.scripts.append("")
        for key, _ in attributes:
            assert not key.startswith("on"), key

    def handle_data(self, text):
        if self.cdata_elem == "script":
            self.scripts[-1] += text


def test_the_policy_allows_the_scripts_of_the_page_and_no_others(page):
    found = Elements(page)
    policy = next(m["content"] for m in found.meta if m.get("http-equiv"))
    assert policy.startswith("default-src 'none'; script-src ")
    script = re.search(r"script-src ([^;]*)", policy).group(1)
    data, *scripts = found.scripts
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert script.split() == [f"'sha256-{digest}'" for digest in digests]
    assert len(scripts) == 3
    assert re.search(r"style-src 'sha256-[^' ]+';", policy)
    assert "unsafe" not in policy
    assert "style=" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not {"link", "img", "iframe", "object", "form"} & set(found.names)
    assert json.loads(data)["after"] == evidence().after


def test_hostile_names_add_no_element():
    plain = Elements(Report(evidence(("a", "b", "c", "d"))).to_html())
    hostile = Elements(Report(evidence(HOSTILE)).to_html())
    assert set(hostile.names) == set(plain.names)
    assert len(hostile.scripts) == 4


@given(st.text())
def test_any_text_is_shown_and_does_nothing(text):
    found = Elements(f"<p>{escape(text)}</p>{tag('b', text, title=text)}{name_tag(text)}")
    assert [name for name in found.names if name not in ("p", "b", "bdi")] == []
    escape(text).encode("utf-8")


def test_of_many_groups_the_widest_gap_is_shown():
    rng = np.random.default_rng(0)
    names = [f"g{k:02}" for k in range(20)]
    groups = np.concatenate([rng.permutation(names) for _ in range(40)])
    lists = np.repeat(np.arange(40), 20)
    scores = rng.normal(size=len(groups)) + 3.0 * (groups == "g19") - 3.0 * (groups == "g17")
    queries = Queries.from_arrays(
        None, rng.integers(0, 2, len(groups)), qid=lists, sensitive_features=groups
    )
    held = collect(queries, {"one": scores}, constraint="statistical", n_resamples=20)
    assert {"g19", "g17"} & set(held.gap)
    shown = [held.groups[at] for at in shown_groups(held)]
    assert len(shown) == 12
    assert set(held.gap) < set(shown)
    assert "8 more groups, which are smaller, are not shown" in Report(held).to_html()


def test_no_page_is_too_large(page):
    held = evidence()
    whole, least = len(page.encode()), len(Report(_without_queries(held)).to_html().encode())
    smaller = Report(held).to_html((whole + least) // 2)
    assert len(smaller.encode()) <= (whole + least) // 2
    shown = int(re.search(r"(\d+) of 24 held-out queries can be selected", smaller).group(1))
    assert 0 < shown < len(held.queries)
    with pytest.raises(InputError, match="3 rankers and 2 groups is larger than"):
        Report(held).to_html(least - 1)
    assert whole < 5_000_000


def _without_queries(held):
    bare = tuple(replace(each, tops=(), scores=()) for each in held.candidates)
    return replace(held, queries=(), candidates=bare)


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")
    monkeypatch.setattr(Report, "to_html", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Report(evidence()).save(path)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    monkeypatch.undo()
    with pytest.raises(InputError, match="no folder"):
        Report(evidence()).save(tmp_path / "nowhere" / "report.html")


@pytest.fixture
def no_bokeh(monkeypatch):
    real = importlib.import_module

    def without(name, *rest):
        if name.startswith("bokeh"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr("pairity.reports.charts.import_module", without)


def test_without_bokeh_it_says_what_to_install(no_bokeh):
    with pytest.raises(MissingExtraError, match=r"pairity\[report\]"):
        Report(evidence()).to_html()


def test_without_bokeh_the_evidence_is_kept(no_bokeh, jobs, tmp_path, capsys, monkeypatch):
    assert train_model(jobs, tmp_path / "model", "--tolerance", "0.5") == 0
    said = capsys.readouterr()
    assert "pairity[report]" in said.err
    assert f"pairity report {tmp_path / 'model'}" in said.err
    assert "The report is" not in said.out
    monkeypatch.undo()
    assert main(["report", str(tmp_path / "model"), "--output", str(tmp_path / "a.html")]) == 0


def test_audits_and_a_sweep_make_a_page():
    train, test, plain, fair = trained()
    before, after = (
        audit(test, model.predict(test.X), name=name, n_resamples=50)
        for name, model in (("plain", plain), ("reweighted", fair))
    )
    curve = sweep(
        [as_method(FairRanker(progress=False), tolerance=t) for t in (0.1, 0.2)],
        train, test, n_resamples=50, progress=False,
    )  # fmt: skip
    report = Report([before, after], frontier=curve)
    assert [each.name for each in report.evidence.candidates[:2]] == ["plain", "reweighted"]
    assert len(report.evidence.candidates) == 4
    text = report.to_html()
    assert f"{after.violation['inter']:.3f}" in text
    assert "dashed line" not in text  # audits know of no tolerance
    assert "<iframe" in report._repr_html_()
    assert repr(report) == "Report('plain' to 'reweighted', inter, 24 queries)"
    assert Report(before, constraint="statistical").evidence.constraint == "statistical"


def test_the_best_points_of_a_sweep_have_rankings(jobs, tmp_path, capsys):
    out = tmp_path / "sweep.html"
    words = ["--label", "hired", "--query", "search", "--group", "gender", "--quiet"]
    words += ["--methods", "plain", "reweighted", "exposure lp", "--budget", "2"]
    assert main(["sweep", str(jobs), *words, "--report", str(out)]) == 0
    text = out.read_text()
    for name in ("plain", "reweighted, tolerance=0.2", "exposure lp, slack=1.0"):
        assert name in text
    assert "reads groups" in text
    assert "one draw is shown" in text
    assert "held-out queries can be selected" in text
    assert main(["sweep", str(jobs), *words, "--report", str(tmp_path / "no" / "a.html")]) == 2
    assert "folder" in capsys.readouterr().err


def test_the_page_of_a_sweep_is_about_the_queries_of_its_first_seed(jobs, tmp_path, monkeypatch):
    seen = {}

    def collect_sweep(frontier, methods, train, test, **options):
        scores = methods[0].fit(train, 3)(test)
        seen["auc"] = audit(test, scores, n_resamples=0).auc, frontier.runs[0].test["auc"].value
        raise InputError("enough")

    monkeypatch.setattr("pairity.reports.collect.collect_sweep", collect_sweep)
    words = ["--label", "hired", "--query", "search", "--group", "gender", "--quiet"]
    words += ["--methods", "plain", "--seed", "3", "--seeds", "2"]
    assert main(["sweep", str(jobs), *words, "--report", str(tmp_path / "sweep.html")]) == 2
    assert seen["auc"][0] == seen["auc"][1]


def test_what_cannot_be_shown_is_refused():
    _, test, plain, _ = trained()
    result = audit(test, plain.predict(test.X), name="plain", n_resamples=0)
    other = audit(test.take([0, 1, 2]), plain.predict(test.take([0, 1, 2]).X), n_resamples=0)
    with pytest.raises(InputError, match="no audit"):
        Report([])
    with pytest.raises(InputError, match="different queries"):
        Report([result, other])
    with pytest.raises(InputError, match="'nothing' is not in every audit"):
        Report([result], constraint="nothing")
    with pytest.raises(InputError, match="not of str"):
        Report(["plain"])
    with pytest.raises(InputError, match="to collect"):
        Report(evidence(), tolerance=0.1)
    with pytest.raises(InputError, match="no ranker to report on"):
        collect(test, {})
    with pytest.raises(InputError, match="no ranker 'best'"):
        collect(test, {"plain": plain.predict(test.X)}, after="best")
    with pytest.raises(InputError, match="items has 3 names"):
        collect(test, {"plain": plain.predict(test.X)}, items=list("abc"), n_resamples=0)
    with pytest.raises(InputError, match="scores of 'plain'"):
        collect(test, {"plain": Scored(["a"] * test.n_items)})


def test_a_constraint_of_ones_own():
    _, test, plain, fair = trained()

    def lead(queries, scores):
        """How much higher the scores of a group are."""
        means = [scores[queries.group == k].mean() for k in range(queries.n_groups)]
        return np.array(means) - np.mean(means)

    held = collect(
        test, {"plain": plain.predict(test.X), "fair": fair.predict(test.X)}, constraint=lead,
        n_resamples=20,
    )  # fmt: skip
    assert held.constraint == "lead"
    text = Report(held).to_html()
    assert "has no interval" in text
    assert "chart-histogram" not in text


# --- kept and read back --------------------------------------------------------------------------


def test_evidence_comes_back_as_it_went():
    for held in (evidence(), collect_audits([trained_audit()])):
        again = Evidence.from_json(held.to_json())
        assert again.to_json() == held.to_json()
        assert Report(again).to_html() == Report(held).to_html()


def trained_audit():
    _, test, plain, _ = trained()
    return audit(test, plain.predict(test.X), name="plain", n_resamples=20)


def change(held, *path, to):
    read = json.loads(held.to_json())
    at = read
    for key in path[:-1]:
        at = at[key]
    if to is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return json.dumps(read)


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (["format"], "another"),
        (["title"], 3),
        (["title"], ...),
        (["more"], 1),
        (["groups"], "men"),
        (["after"], 99),
        (["after"], True),
        (["candidates"], []),
        (["candidates", 0, "estimates", 0, "value"], "0.5"),
        (["candidates", 0, "audit"], {}),
        (["candidates", 0, "tops", 0], [999]),
        (["candidates", 2, "weights"], [[1.0]]),
        (["queries", 0, "items", 0, "group"], 7),
        (["rounds", 0, "lambda"], [1.0, 2.0, 3.0]),
        (["outcome"], "The violation came within the tolerance."),
        (["provenance", 0], ["one"]),
    ],
)
def test_evidence_that_was_changed_is_refused(path, to):
    with pytest.raises(InputError):
        Evidence.from_json(change(evidence(), *path, to=to))


@given(st.integers(0, 3000), st.integers(0, 255))
def test_broken_evidence_is_one_clear_error(at, byte):
    text = bytearray(evidence().to_json()[:4000].encode())
    text[at] = byte
    for broken in (bytes(text), bytes(text[:at])):
        with pytest.raises(InputError):
            Evidence.from_json(broken)


# --- on the command line -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    path = tmp_path_factory.mktemp("jobs") / "jobs.csv"
    train, *_ = trained()
    rows = zip(train["qid"], *train.X.T, train["sensitive_features"], train.y, strict=True)
    names = ["search", *(f"x{k}" for k in range(train.X.shape[1])), "gender", "hired"]
    path.write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]))
    return path


def train_model(jobs, folder, *more):
    asked = ["--label", "hired", "--query", "search", "--group", "gender", "--output", str(folder)]
    return main(["train", str(jobs), *asked, "--points", "1", *more])


@pytest.fixture(scope="module")
def models(jobs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, tolerance in (("one", "0.5"), ("two", "0.3")):
        assert train_model(jobs, folder / name, "--tolerance", tolerance, "--quiet") == 0
    return folder


def test_training_keeps_a_report(models):
    page = (models / "one" / "report.html").read_text()
    assert "pairity train" in page
    assert "training data, SHA-256" in page
    assert load(models / "one").training_digest_ in page
    held = Evidence.from_json((models / "one" / FILE).read_bytes())
    assert [each.name for each in held.candidates] == ["plain", "50 % of the way", "reweighted"]
    assert held.attributes == ("gender",)


def test_the_page_is_drawn_again(models, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", str(models / "one"), "--output", str(out)]) == 0
    assert capsys.readouterr().out == f"The report is {out}.\n"
    assert out.read_text() == (models / "one" / "report.html").read_text()
    both = [str(models / "one"), str(models / "two")]
    assert main(["report", *both, "--output", str(out), "--title", "Both <b>", "--quiet"]) == 0
    assert "Both &lt;b&gt;" in out.read_text()
    held = merge_evidence({name: read(models / name) for name in ("one", "two")})
    names = [each.name for each in held.candidates]
    assert names == [
        "plain", "one: 50 % of the way", "one: reweighted", "two: 50 % of the way",
        "two: reweighted",
    ]  # fmt: skip
    two = read(models / "two")
    for mine, theirs in zip(held.candidates[3:], two.candidates[1:], strict=True):
        for query, other, top, their in zip(
            held.queries, two.queries, mine.tops, theirs.tops, strict=True
        ):
            assert [query.items[at] for at in top] == [other.items[at] for at in their]


def read(folder):
    return Evidence.from_json((folder / FILE).read_bytes())


def test_what_cannot_be_reported_on_is_said(models, jobs, tmp_path, capsys):
    def told(*words):
        assert main(["report", *words, "--output", str(tmp_path / "page.html")]) == 2
        assert not (tmp_path / "page.html").exists()
        return capsys.readouterr().err

    assert "does not exist" in told(str(tmp_path / "nothing"))
    assert train_model(jobs, tmp_path / "bare", "--no-report", "--tolerance", "0.5", "--quiet") == 0
    assert "--no-report" in told(str(tmp_path / "bare"))
    assert sorted(p.name for p in (tmp_path / "bare").iterdir()) == ["manifest.json", "ranker.npz"]
    assert train_model(jobs, tmp_path / "other", "--test", "0.5", "--quiet") in (0, 1)
    assert "cannot be shown on one page" in told(str(models / "one"), str(tmp_path / "other"))
    changed = models / "two" / "report.html"
    before = changed.read_text()
    changed.write_text(before + " ")
    with pytest.raises(ModelFileError, match="truncated or changed"):
        load(models / "two")
    assert "truncated or changed" in told(str(models / "two"))
    changed.write_text(before)
