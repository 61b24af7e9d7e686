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
from pairity._utils.html import escape, tag
from pairity.cli import main
from pairity.exceptions import InputError, MissingExtraError, ModelFileError
from pairity.reports.caveats import add_caveats
from pairity.reports.charts import draw
from pairity.reports.collect import Scored, collect, collect_audits
from pairity.reports.evidence import FILE, Evidence
from pairity.reports.merge import merge_evidence
from pairity.reports.observations import Observer, position_shares
from pairity.reports.prose import explain, summary, weight_sentences
from pairity.reports.report import shown_groups
from pairity.reweighting.persistence import load
from support.report_cases import HOSTILE, make_evidence, trained

pytest.importorskip("bokeh")


@pytest.fixture(scope="module")
def page():
    return Report(make_evidence()).to_html()


# --- what was measured ---------------------------------------------------------------------------


def test_changes_are_differences_of_the_audits():
    evidence = make_evidence()
    before = evidence.candidates[evidence.before]
    for candidate in evidence.candidates[1:]:
        for measure, name in (("violation", "inter"), ("auc", None)):
            change = candidate.change(measure)
            old, new = (ranker.estimate(measure, name).value for ranker in (before, candidate))
            assert change.value == pytest.approx(new - old, abs=1e-12)
            assert change.low <= change.value + 0.1
            assert change.low <= change.high
    assert before.changes == ()


def test_the_gap_of_one_query_is_that_of_the_constraint():
    _, test, plain, _ = trained()
    scores = plain.predict(test.X)
    observer = Observer(
        test, InterGroup(), "inter", scores, confidence=0.95, n_resamples=0, random_state=0
    )
    gaps = observer.gaps(scores)
    for at in range(test.n_queries):
        rows = test.query == at
        delta = InterGroup().delta(test.take([at]), scores[rows])
        alone = delta[0, 1] - delta[1, 0]  # 'men' are the favoured ones
        assert np.isnan(alone) == np.isnan(gaps[at])
        if not np.isnan(alone):
            assert gaps[at] == pytest.approx(alone)
    assert sum(observer.histogram(scores)) == np.count_nonzero(~np.isnan(gaps))


def test_shares_of_a_position_add_up_to_1():
    queries = Queries.from_arrays(
        None, [1, 0, 1, 0, 1], qid=[1, 1, 1, 2, 2], sensitive_features=list("aabab")
    )
    # Query 1: rows 0 and 2 tie for rank 1; query 2: row 4 (b) leads.
    shares = position_shares(queries, np.array([2.0, 1.0, 2.0, 0.0, 1.0]))
    assert shares[0].tolist() == [(0.5 + 0) / 2, (0.5 + 1) / 2, 1.0]
    assert np.allclose(shares.sum(axis=0), 1.0)


def test_tops_are_the_order_of_the_scores():
    evidence = make_evidence()
    for candidate in evidence.candidates:
        for top, scores, query in zip(
            candidate.tops, candidate.scores, evidence.queries, strict=True
        ):
            assert list(scores) == sorted(scores, reverse=True)
            assert len(top) == min(10, query.n_items)
    first = evidence.candidates[evidence.before]
    for top, query in zip(first.tops, evidence.queries, strict=True):
        assert [query.items[index].rank for index in top] == list(range(1, len(top) + 1))
    gaps = [query.gap for query in evidence.queries]
    assert gaps == sorted(gaps, reverse=True)


def test_caveats_come_from_facts():
    evidence = make_evidence()
    texts = " ".join(caveat.text for caveat in evidence.candidates[evidence.after].caveats)
    assert "Only 24 queries were held out" in texts
    assert "‘\u2068gender\u2069’" in texts
    assert "Proposition 1" in texts
    few = add_caveats(replace(evidence, n_queries=4, tolerance=0.0001))
    texts = " ".join(caveat.text for caveat in few.candidates[evidence.after].caveats)
    assert "too few to rely on any number" in texts
    assert "tolerance of 0.0001" in texts
    many = add_caveats(replace(evidence, n_queries=4000, tolerance=0.9, attributes=()))
    texts = " ".join(caveat.text for caveat in many.candidates[evidence.after].caveats)
    assert "queries were held out" not in texts
    assert "tolerance" not in texts


@pytest.mark.parametrize("before", [0.2, 0.01])
@pytest.mark.parametrize("after", [0.2, 0.02])
def test_a_disparity_within_the_noise_floor_is_a_caveat(before, after):
    evidence = make_evidence()
    values = {evidence.before: (before, 0.05), evidence.after: (after, 0.06)}
    candidates = list(evidence.candidates)
    for index, (value, floor) in values.items():
        replaced = {"violation": value, "noise_floor": floor}
        estimates = tuple(
            replace(e, value=replaced.get(e.measure, e.value)) for e in candidates[index].estimates
        )
        candidates[index] = replace(candidates[index], estimates=estimates)
    evidence = add_caveats(replace(evidence, candidates=tuple(candidates)))
    caveats = evidence.candidates[evidence.after].caveats
    found = [caveat.text for caveat in caveats if "is within the noise floor" in caveat.text]
    names = {
        "(0.010, noise floor 0.050)": before < 0.05, "(0.020, noise floor 0.060)": after < 0.06
    }  # fmt: skip
    assert len(found) == any(names.values())
    for text in found:
        assert {words for words in names if words in text} == {w for w in names if names[w]}
        assert "between ‘\u2068men\u2069’ and ‘\u2068women\u2069’" in text
        assert "these 24 held-out queries could not show a smaller one" in text


def test_the_page_states_the_noise_floor_beside_the_violation(page):
    evidence = make_evidence()
    old, new = (evidence.candidates[index].noise_floor("inter") for index in (0, evidence.after))
    assert f"noise floor {old:.3f} → {new:.3f}" in page
    n_known = sum(
        estimate.measure == "noise_floor"
        for candidate in evidence.candidates
        for estimate in candidate.estimates
    )
    assert page.count('<span class="range">noise floor') == n_known == 12
    assert "variation between these 24 held-out queries alone produces" in page


def test_missing_groups_and_small_cells_are_caveats():
    _, test, plain, _ = trained()
    groups = np.array(test["sensitive_features"], dtype=object)
    groups[::3] = None
    part = Queries.from_arrays(
        test.X, test.y, qid=test["qid"], sensitive_features=groups
    ).take(np.arange(6))  # fmt: skip
    evidence = collect(part, {"plain": plain.predict(part.X)}, n_resamples=20)
    texts = " ".join(caveat.text for caveat in evidence.candidates[0].caveats)
    assert "have no known group" in texts
    assert "4 of 8 cells" in texts or "8 of 8 cells" in texts
    assert "✻ few" in Report(evidence).to_html()


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [0.001, 0.9])
def test_the_frontier_includes_the_tolerance(tolerance):
    evidence = replace(make_evidence(), tolerance=tolerance)
    sight = draw(evidence)["frontier"]["doc"]["roots"][0]["attributes"]["x_range"]["attributes"]
    assert sight["start"] < tolerance < sight["end"]
    assert "The dashed line is the tolerance" in Report(evidence).to_html()


def test_the_summary_has_the_estimates():
    evidence = make_evidence()
    after = evidence.candidates[evidence.after]
    first, second = summary(evidence, after)
    first = "".join(text for text, _ in first)
    for estimate in (after.estimate("violation", "inter"), after.estimate("auc")):
        assert f"{estimate.value:.3f}" in first
        assert f"{estimate.low:.3f} to {estimate.high:.3f}" in first
    for ranker in (evidence.candidates[0], after):
        assert f"noise floor {ranker.noise_floor('inter'):.3f})" in first
    assert "24 held-out queries" in first
    assert "100 bootstrap resamples" in second
    assert "men" in explain(evidence, after)


def test_pair_weights_as_sentences():
    evidence = make_evidence()
    weights = ((1.0, 0.4), (1.4, 1.0))
    sentences = weight_sentences(
        evidence, replace(evidence.candidates[evidence.after], weights=weights)
    )
    one = "A training pair in which an item of ‘\u2068men\u2069’ was preferred to one of "
    assert sentences[0] == one + "‘\u2068women\u2069’ counts 0.40 times."
    assert sentences[-1] == "All other pairs count once."
    plain = replace(evidence.candidates[0], weights=((1.0, 1.0), (1.0, 1.0)))
    assert weight_sentences(evidence, plain) == [
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
    elements = Elements(page)
    policy = next(m["content"] for m in elements.meta if m.get("http-equiv"))
    assert policy.startswith("default-src 'none'; script-src ")
    script = re.search(r"script-src ([^;]*)", policy).group(1)
    data, *scripts = elements.scripts
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert script.split() == [f"'sha256-{digest}'" for digest in digests]
    assert len(scripts) == 3
    assert re.search(r"style-src 'sha256-[^' ]+';", policy)
    assert "unsafe" not in policy
    assert "style=" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not {"link", "img", "iframe", "object", "form"} & set(elements.names)
    assert json.loads(data)["after"] == make_evidence().after


def test_hostile_names_add_no_element():
    plain = Elements(Report(make_evidence(("a", "b", "c", "d"))).to_html())
    hostile = Elements(Report(make_evidence(HOSTILE)).to_html())
    assert set(hostile.names) == set(plain.names)
    assert len(hostile.scripts) == 4


@given(st.text())
def test_any_text_is_escaped(text):
    elements = Elements(f"<p>{escape(text)}</p>{tag('b', text, title=text)}")
    assert [name for name in elements.names if name not in ("p", "b")] == []
    escape(text).encode("utf-8")


@pytest.mark.parametrize("text", ["\ud800\x00</script><b>{{ 7 * 7 }}", "</title>'\"&amp;{% raw %}"])
def test_any_text_on_the_page_is_escaped(page, text):
    evidence = make_evidence()
    first, *others = evidence.candidates
    queries = tuple(replace(query, name=text) for query in evidence.queries)
    changed = Report(
        replace(
            evidence, title=text, candidates=(replace(first, name=text, note=text), *others),
            provenance=((text, text),), queries=queries,
        )
    ).to_html()  # fmt: skip
    assert set(Elements(changed).names) == set(Elements(page).names)
    assert len(Elements(changed).scripts) == 4
    assert f"<title>{escape(text)}</title>" in changed


def test_report_of_a_fitted_model():
    train, test, plain, fair = trained()
    report = Report.of(plain, fair, train, test, shares=[0.5], n_resamples=20, title="Hiring")
    names = [candidate.name for candidate in report.evidence.candidates]
    assert names == ["plain", "50 % of the way", "reweighted"]
    assert report.evidence.outcome is fair.outcome_
    assert "<title>Hiring</title>" in report.to_html()


def test_the_groups_of_the_largest_gap_are_shown():
    rng = np.random.default_rng(0)
    names = [f"g{k:02}" for k in range(20)]
    groups = np.concatenate([rng.permutation(names) for _ in range(40)])
    lists = np.repeat(np.arange(40), 20)
    scores = rng.normal(size=len(groups)) + 3.0 * (groups == "g19") - 3.0 * (groups == "g17")
    queries = Queries.from_arrays(
        None, rng.integers(0, 2, len(groups)), qid=lists, sensitive_features=groups
    )
    evidence = collect(queries, {"one": scores}, constraint="statistical", n_resamples=20)
    assert {"g19", "g17"} & set(evidence.gap)
    shown = [evidence.groups[k] for k in shown_groups(evidence)]
    assert len(shown) == 12
    assert set(evidence.gap) < set(shown)
    assert "8 more groups, which are smaller, are not shown" in Report(evidence).to_html()


def test_no_page_is_too_large(page):
    evidence = make_evidence()
    whole, least = len(page.encode()), len(Report(_without_queries(evidence)).to_html().encode())
    smaller = Report(evidence).to_html((whole + least) // 2)
    assert len(smaller.encode()) <= (whole + least) // 2
    shown = int(re.search(r"(\d+) of 24 held-out queries can be selected", smaller).group(1))
    assert 0 < shown < len(evidence.queries)
    with pytest.raises(InputError, match="3 rankers and 2 groups is larger than"):
        Report(evidence).to_html(least - 1)
    assert whole < 5_000_000


def _without_queries(evidence):
    bare = tuple(replace(candidate, tops=(), scores=()) for candidate in evidence.candidates)
    return replace(evidence, queries=(), candidates=bare)


def test_a_failed_save_leaves_the_file_unchanged(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")
    monkeypatch.setattr(Report, "to_html", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Report(make_evidence()).save(path)
    assert path.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    monkeypatch.undo()
    with pytest.raises(InputError, match="is not a folder"):
        Report(make_evidence()).save(tmp_path / "nowhere" / "report.html")


@pytest.fixture
def no_bokeh(monkeypatch):
    real = importlib.import_module

    def without(name, *rest):
        if name.startswith("bokeh"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr("pairity._utils.extras.import_module", without)


def test_without_bokeh_the_error_says_what_to_install(no_bokeh):
    with pytest.raises(MissingExtraError, match=r"pairity\[report\]"):
        Report(make_evidence()).to_html()


def test_without_bokeh_the_evidence_is_kept(no_bokeh, jobs, tmp_path, capsys, monkeypatch):
    assert train_model(jobs, tmp_path / "model", "--tolerance", "0.5") == 0
    output = capsys.readouterr()
    assert "pairity[report]" in output.err
    assert f"pairity report {tmp_path / 'model'}" in output.err
    assert "The report is" not in output.out
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
    assert [ranker.name for ranker in report.evidence.candidates[:2]] == ["plain", "reweighted"]
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


def test_invalid_input_is_refused():
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
        Report(make_evidence(), tolerance=0.1)
    with pytest.raises(InputError, match="no ranker to report on"):
        collect(test, {})
    with pytest.raises(InputError, match="no ranker 'best'"):
        collect(test, {"plain": plain.predict(test.X)}, after="best")
    with pytest.raises(InputError, match="items has 3 entries"):
        collect(test, {"plain": plain.predict(test.X)}, items=list("abc"), n_resamples=0)
    with pytest.raises(InputError, match="scores of 'plain'"):
        collect(test, {"plain": Scored(["a"] * test.n_items)})


def test_a_user_defined_constraint():
    _, test, plain, fair = trained()

    def lead(queries, scores):
        """How much higher the scores of a group are."""
        means = [scores[queries.group == k].mean() for k in range(queries.n_groups)]
        return np.array(means) - np.mean(means)

    evidence = collect(
        test, {"plain": plain.predict(test.X), "fair": fair.predict(test.X)}, constraint=lead,
        n_resamples=20,
    )  # fmt: skip
    assert evidence.constraint == "lead"
    text = Report(evidence).to_html()
    assert "has no interval" in text
    assert "chart-histogram" not in text
    assert not np.isfinite(evidence.candidates[0].noise_floor("lead"))
    assert "mean disparity that variation" not in text


# --- kept and read back --------------------------------------------------------------------------


def test_evidence_survives_a_round_trip():
    for evidence in (make_evidence(), collect_audits([trained_audit()])):
        again = Evidence.from_json(evidence.to_json())
        assert again.to_json() == evidence.to_json()
        assert Report(again).to_html() == Report(evidence).to_html()


def trained_audit():
    _, test, plain, _ = trained()
    return audit(test, plain.predict(test.X), name="plain", n_resamples=20)


def change(evidence, *path, to):
    read = json.loads(evidence.to_json())
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
        Evidence.from_json(change(make_evidence(), *path, to=to))


@given(st.integers(0, 3000), st.integers(0, 255))
def test_broken_evidence_is_one_clear_error(at, byte):
    text = bytearray(make_evidence().to_json()[:4000].encode())
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
    evidence = Evidence.from_json((models / "one" / FILE).read_bytes())
    assert [candidate.name for candidate in evidence.candidates] == [
        "plain",
        "50 % of the way",
        "reweighted",
    ]
    assert evidence.attributes == ("gender",)


def test_the_page_is_drawn_again(models, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", str(models / "one"), "--output", str(out)]) == 0
    assert capsys.readouterr().out == f"The report is {out}.\n"
    assert out.read_text() == (models / "one" / "report.html").read_text()
    both = [str(models / "one"), str(models / "two")]
    assert main(["report", *both, "--output", str(out), "--title", "Both <b>", "--quiet"]) == 0
    assert "Both &lt;b&gt;" in out.read_text()
    evidence = merge_evidence({name: read(models / name) for name in ("one", "two")})
    names = [candidate.name for candidate in evidence.candidates]
    assert names == [
        "plain", "one: 50 % of the way", "one: reweighted", "two: 50 % of the way",
        "two: reweighted",
    ]  # fmt: skip
    two = read(models / "two")
    for mine, theirs in zip(evidence.candidates[3:], two.candidates[1:], strict=True):
        for query, other, top, their in zip(
            evidence.queries, two.queries, mine.tops, theirs.tops, strict=True
        ):
            assert [query.items[index] for index in top] == [other.items[index] for index in their]


def read(folder):
    return Evidence.from_json((folder / FILE).read_bytes())


def test_the_command_refuses_what_it_cannot_report_on(models, jobs, tmp_path, capsys):
    def error_of(*words):
        assert main(["report", *words, "--output", str(tmp_path / "page.html")]) == 2
        assert not (tmp_path / "page.html").exists()
        return capsys.readouterr().err

    assert "does not exist" in error_of(str(tmp_path / "nothing"))
    assert train_model(jobs, tmp_path / "bare", "--no-report", "--tolerance", "0.5", "--quiet") == 0
    assert "--no-report" in error_of(str(tmp_path / "bare"))
    assert sorted(p.name for p in (tmp_path / "bare").iterdir()) == ["manifest.json", "ranker.npz"]
    assert train_model(jobs, tmp_path / "other", "--test", "0.5", "--quiet") in (0, 1)
    assert "cannot be shown on one page" in error_of(str(models / "one"), str(tmp_path / "other"))
    changed = models / "two" / "report.html"
    before = changed.read_text()
    changed.write_text(before + " ")
    with pytest.raises(ModelFileError, match="truncated or changed"):
        load(models / "two")
    assert "truncated or changed" in error_of(str(models / "two"))
    changed.write_text(before)
