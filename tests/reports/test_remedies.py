"""Where a fit misses its tolerance, a report says what limits it and what was tried."""

import csv
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from pairity import FairRanker, LinearRanker, Outcome, Queries, Report, audit
from pairity._utils.html import escape
from pairity.baselines import exposure_lp
from pairity.baselines.methods import Method
from pairity.cli import main
from pairity.exceptions import PairityWarning
from pairity.rankers.lightgbm import LightGBMRanker
from pairity.reports import collect as collecting
from pairity.reports.collect import collect_training
from pairity.reports.evidence import Evidence
from pairity.reports.remedies import Remedy, list_remedies

pytestmark = pytest.mark.filterwarnings("ignore::pairity.PairityWarning")


def make_queries(lengths, names=("men", "women")):
    """Lists with one feature, which follows the label and the group: no weights can part them."""
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(len(lengths)), lengths)
    group, y = rng.integers(0, 2, len(qid)), rng.integers(0, 3, len(qid))
    X = np.column_stack([y + 2.0 * group + 0.5 * rng.normal(size=len(qid))])
    return Queries.from_arrays(X, y, qid=qid, sensitive_features=np.array(names)[group])


TRAIN, TEST = make_queries([20] * 50).split(0.4, random_state=0)
RAGGED = make_queries([4] * 40 + [60] * 2)


def fit(train=TRAIN, **options):
    return FairRanker(**{"constraint": "statistical", "progress": False, **options}).fit(train)


def evidence_of(model, train=TRAIN, test=TEST, **options):
    plain = FairRanker(max_rounds=0, progress=False).fit(train)
    return collect_training(plain, model, train, test, shares=(), n_resamples=20, **options)


def with_groups(queries):
    columns = [queries.group == code for code in range(queries.n_groups)]
    return queries.with_features(np.column_stack([queries.X, *columns]).astype(float))


def estimates(evidence):
    return {
        evidence.candidates[index].name: (
            evidence.candidates[index].estimate("violation", "statistical").value,
            evidence.candidates[index].estimate("auc").value,
        )
        for index in evidence.remedies
    }


def measured(scores, test=TEST):
    result = audit(test, scores, n_resamples=0)
    return pytest.approx((result.violation["statistical"], result.auc), abs=1e-9)


@pytest.fixture(scope="module")
def missed():
    with warnings.catch_warnings(action="ignore", category=PairityWarning):
        model = fit(weighting="paper")
        return model, evidence_of(model)


# --- what is tried -------------------------------------------------------------------------------


def test_remedies_are_what_fitting_them_by_hand_gives(missed):
    model, evidence = missed
    assert model.outcome_.kind is Outcome.UNREACHABLE
    tried = estimates(evidence)
    by_hand = {
        "weighting='reversible'": fit().predict(TEST),
        "group as a feature": fit(with_groups(TRAIN), weighting="paper").predict(with_groups(TEST)),
        "post-processing": exposure_lp(
            Method("fitted", lambda *_: lambda queries: model.predict(queries.X)),
            constraint="parity",
        )(TRAIN, TEST).sample(TEST, 0),
    }
    for name, scores in by_hand.items():
        assert tried[name] == measured(scores)
    assert tried["group as a feature"][0] < 0.1 < model.violation_
    assert evidence.candidates[evidence.after].name == "reweighted"
    assert set(tried) - {"LightGBM"} == set(by_hand)
    reading = [candidate.name for candidate in evidence.candidates if candidate.needs_group]
    assert reading == ["group as a feature", "post-processing"]


def test_lightgbm_is_the_more_flexible_ranker(missed):
    engine = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    trees = LightGBMRanker(engine.LGBMRanker(verbose=-1, random_state=0, n_jobs=1), loss="logistic")
    scores = fit(ranker=trees, weighting="paper", random_state=0).predict(TEST)
    assert estimates(missed[1])["LightGBM"] == measured(scores)


def test_equal_queries_are_tried_where_long_lists_rule():
    model = fit(RAGGED)
    assert any("query_weight='equal'" in text for text in model.outcome_.limits)
    scores = fit(RAGGED.with_equal_queries()).predict(TEST)
    assert estimates(evidence_of(model, RAGGED))["query_weight='equal'"] == measured(scores)


def test_nothing_is_tried_without_need_or_where_it_is_not_cheap(missed):
    model, _ = missed
    assert list_remedies(fit(tolerance=0.9), TRAIN, TEST) == []
    assert list_remedies(model, TRAIN, TEST, most_items=TRAIN.n_items - 1) == []
    assert len(list_remedies(model, TRAIN, TEST, most_items=TRAIN.n_items)) == 4
    assert evidence_of(model, remedies=False).remedies == ()
    noise = Queries.from_arrays(
        np.random.default_rng(0).normal(size=(TRAIN.n_items, 2)), TRAIN.y, qid=TRAIN["qid"],
        sensitive_features=TRAIN["sensitive_features"],
    )  # fmt: skip
    uncertain = fit(noise, tolerance=0.0)
    assert uncertain.outcome_.kind is Outcome.WITHIN_NOISE
    assert uncertain.outcome_.limits
    assert list_remedies(uncertain, noise, TEST) == []


def test_features_in_files_are_not_tried(missed, tmp_path):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    from pairity import read_parquet

    columns = {"x": TRAIN.X[:, 0], "y": TRAIN.y, "q": TRAIN["qid"]}
    table = pa.table({**columns, "g": TRAIN["sensitive_features"]})
    parquet.write_table(table.sort_by("q"), tmp_path / "train.parquet")
    files = read_parquet(
        tmp_path / "train.parquet", y="y", qid="q", sensitive_features="g", features=["x"]
    )
    assert list_remedies(missed[0], files, TEST) == []
    assert not any("With the group" in text for text in fit(files).outcome_.limits)


def test_a_remedy_that_fails_is_left_out():
    # The held-out queries of `validation` have no feature for the group.
    with pytest.warns(PairityWarning, match="'group as a feature' is not in the report"):
        evidence = evidence_of(fit(validation=TEST))
    tried = estimates(evidence)
    assert "group as a feature" not in tried
    assert "post-processing" in tried


def test_an_interrupt_ends_the_report(missed, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    remedy = Remedy("slow", Method("slow", interrupt), "")
    monkeypatch.setattr(collecting, "list_remedies", lambda *_: [remedy])
    with pytest.raises(KeyboardInterrupt):
        evidence_of(missed[0])


# --- what is said --------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_the_fit_tries_the_group_as_a_feature(sparse):
    train = TRAIN.with_features(sp.csr_array(TRAIN.X)) if sparse else TRAIN
    model = fit(train)
    plain = LinearRanker().fit_pairs(with_groups(TRAIN), np.ones((2, 2)))
    result = audit(TRAIN, plain.predict(with_groups(TRAIN).X), n_resamples=0)
    said = (
        f"even the plain ranker has a violation of {result.violation['statistical']:.3f} at an AUC "
        f"of {result.auc:.3f} on {TRAIN.n_queries} training queries (now {model.violation_:.3f} at "
    )
    assert said in str(model.outcome_)
    assert "the law may forbid" in str(model.outcome_)


def test_the_page_shows_limits_and_remedies(missed):
    pytest.importorskip("bokeh")
    model, evidence = missed
    page = Report(evidence).to_html()
    for text in model.outcome_.limits:
        assert page.count(f"<li>{escape(text)}</li>") == 1
    assert page.count("What may help") == 1
    for index in evidence.remedies:
        assert escape(evidence.candidates[index].note) in page
    assert "confirm it on other queries" in page
    again = Evidence.from_json(evidence.to_json())
    assert again.remedies == evidence.remedies
    assert Report(again).to_html() == page
    reached = Report(evidence_of(fit(tolerance=0.9))).to_html()
    assert "What may help" not in reached
    assert "What limits the fit" not in reached


def test_limits_are_escaped(missed):
    pytest.importorskip("bokeh")
    model, evidence = missed
    hostile = "<img src=x onerror=alert(1)>"
    outcome = replace(model.outcome_, limits=(hostile,))
    page = Report(replace(evidence, outcome=outcome)).to_html()
    assert f"<li>{escape(hostile)}</li>" in page
    assert "<img" not in page


def test_the_command_prints_limits_and_remedies(tmp_path, capsys):
    table = tmp_path / "jobs.csv"
    queries = make_queries([20] * 50)
    with table.open("w", newline="") as file:
        columns = (queries["qid"], queries.X[:, 0], queries["sensitive_features"], queries.y)
        csv.writer(file).writerows([["q", "x", "g", "y"], *zip(*columns, strict=True)])
    command = ["train", str(table), "--label", "y", "--query", "q", "--group", "g", "--points", "0"]
    command += ["--constraint", "statistical", "--output", str(tmp_path / "model")]
    assert main(command) == 1
    printed = capsys.readouterr().out
    assert "\n- With the group among the features" in printed
    assert "\ngroup as a feature " in printed
    assert main([*command, "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert all(f"- {text}\n" in printed for text in document["limits"])
    remedies = {remedy["name"]: remedy for remedy in document["remedies"]}
    remedy = remedies["group as a feature"]
    assert remedy["needs_group"]
    assert f"{remedy['violation']:.3f}  {remedy['auc']:.3f}  yes " in printed
    assert main([*command, "--no-remedies"]) == 1
    assert "what may help" not in capsys.readouterr().out
    assert main([*command, "--tolerance", "0.9", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["limits"] == document["remedies"] == []
