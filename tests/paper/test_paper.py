"""The paper's protocol, on synthetic queries end to end; its claims and figures."""

import csv
import json

import numpy as np
import pytest

from pairity.cli import main
from pairity.comparisons.sweeps import split_in_turn
from pairity.datasets import make_biased_ranking
from pairity.exceptions import InputError
from pairity.paper import checks
from pairity.paper.claims import (
    Mean,
    Verdict,
    about_methods,
    about_shares,
    judge,
    lead_over_seeds,
    level_over_seeds,
    mean_over_seeds,
    spread_difference,
)
from pairity.paper.protocol import (
    COMPARED,
    CONSTRAINTS,
    REWEIGHTED,
    SHARE,
    SHARES,
    TEST,
    VALIDATION,
    Entry,
    Setting,
    candidates,
    choose,
    name_for,
    run_setting,
)
from pairity.paper.reproduction import RunOptions, _resume_claims, run_settings

pytest.importorskip("matplotlib", reason="Matplotlib is not installed")


@pytest.fixture(scope="module")
def setting():
    data = make_biased_ranking(40, 20, strength=2, separation=2, random_state=0)
    return Setting("TREC", True, data.queries(), 2)


@pytest.fixture(scope="module")
def done(setting, tmp_path_factory):
    directory = tmp_path_factory.mktemp("paper")
    return directory, run_settings(
        [setting], directory, RunOptions(quick=True, n_jobs=1, progress=False)
    )


# --- the protocol -------------------------------------------------------------------------------


def test_every_method_is_tuned_with_at_most_the_budget(setting):
    for constraint in CONSTRAINTS:
        for quick in (False, True):
            names = [m.name for m in candidates(constraint, 5, extras=False, quick=quick)]
            wanted = {name_for(method, constraint) for method in COMPARED}
            assert set(names) == wanted
            assert max(map(names.count, names)) == (2 if quick else 6)


def test_every_method_runs_on_every_seed_and_constraint(done, setting):
    _, result = done
    found = {(e.constraint, e.method, e.seed) for e in result.entries}
    assert found >= {
        (constraint, method, seed)
        for constraint in CONSTRAINTS
        for method in COMPARED
        for seed in range(setting.n_seeds)
    }
    assert not result.frontiers[setting.title].failures
    assert {entry.settings["x"] for entry in result.shares} == set(SHARES)


def test_bare_runs_the_five_methods_alone_and_finds_the_same(done, setting, tmp_path):
    _, full = done
    bare = run_settings(
        [setting], tmp_path, RunOptions(quick=True, bare=True, n_jobs=1, progress=False)
    )
    assert {entry.method for entry in bare.entries} == set(COMPARED)
    assert not bare.shares
    want = [e for e in full.entries if e.method in COMPARED]
    assert [(e.auc, e.fairness) for e in bare.entries] == [(e.auc, e.fairness) for e in want]
    texts = {claim.text for claim in bare.claims}
    assert "reweighted is on the Pareto front" in texts
    assert texts < {claim.text for claim in full.claims}
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "plain update" not in page
    assert (tmp_path / "frontier.png").exists()
    assert not list(tmp_path.glob("shares.*"))


def test_no_query_is_on_two_sides(setting):
    for seed in range(5):
        train, test, validation = split_in_turn(seed, setting.queries, TEST, VALIDATION)
        sides = [set(part.query_ids.tolist()) for part in (train, validation, test)]
        assert sum(map(len, sides)) == len(set.union(*sides)) == setting.queries.n_queries


def test_the_choice_is_by_validation_alone(done, setting):
    _, result = done
    frontier = result.frontiers[setting.title]
    runs = [r for r in frontier.runs if r.method == "exposure lp" and r.seed == 1]
    least = min(run.validation["inter"].value for run in runs)
    near = [run for run in runs if run.validation["inter"].value <= least + 0.01]
    lowest = max(near, key=lambda run: run.validation["auc"].value)
    (entry,) = [
        e
        for e in choose(frontier, setting)
        if (e.method, e.constraint, e.seed) == ("exposure lp", "inter", 1)
    ]
    assert entry.auc == lowest.test["auc"].value
    assert entry.own_fairness == 1 - lowest.test["inter"].value


def test_reweighted_is_fairer_than_plain(done):
    _, result = done
    by_method = {
        method: [e for e in result.entries if (e.method, e.constraint) == (method, "statistical")]
        for method in ("plain", REWEIGHTED)
    }
    assert lead_over_seeds(by_method[REWEIGHTED], by_method["plain"], "fairness").value > 0.1


def test_serial_parallel_and_resumed_runs_give_the_same_table(done, setting, tmp_path):
    directory, result = done

    def table(frontier):
        return [repr((r.method, r.settings, r.seed, r.test, r.validation)) for r in frontier.runs]

    want = table(result.frontiers[setting.title])
    runs = directory / "runs" / "trec-with-the-attribute-quick"
    stored = sorted(path for path in runs.rglob("*.json"))
    assert len(stored) > 50
    gone = stored[::2]
    times = {path: path.stat().st_mtime_ns for path in stored[1::2]}
    for path in gone:  # as if it had been killed half-way
        if path.name != "sweep.json":
            path.unlink()
    again = run_setting(setting, extras=True, quick=True, n_jobs=2, directory=runs, progress=False)
    assert table(again) == want
    assert all(path.stat().st_mtime_ns == times[path] for path in times)


def test_what_is_written(done):
    directory, result = done
    names = {path.name for path in directory.iterdir() if path.is_file()}
    assert names == {
        "frontier.png", "frontier.svg", "shares.png", "shares.svg", "results.csv", "results.md",
        "settings.csv", "shares.csv", "verdicts.csv", "verdicts.md",
    }  # fmt: skip
    with (directory / "results.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == len(result.entries)
    assert float(rows[0]["auc"]) == result.entries[0].auc
    json.loads(rows[0]["settings"])
    assert "| reweighted |" in (directory / "results.md").read_text()
    assert "reweighted has the highest test fairness" in (directory / "verdicts.md").read_text()
    (line,) = [
        line
        for line in (directory / "results.md").read_text().splitlines()
        if line.startswith("| TREC, with | plain | inter | 0.633 |")
    ]
    assert line.endswith(("yes |", "no |"))


# --- means and verdicts -------------------------------------------------------------------------


def test_means_over_splits_that_overlap():
    values = [0.1, 0.2, 0.6]
    mean = mean_over_seeds(values)
    # t(0.975, 2) · sd · √(1/3 + 0.2 / 0.64), sd = √0.07
    half = 4.302652729 * 0.07**0.5 * (1 / 3 + 0.2 / 0.64) ** 0.5
    assert (mean.value, mean.n) == (pytest.approx(0.3), 3)
    assert mean.high - mean.value == pytest.approx(half)
    assert mean_over_seeds(values, overlap=0.0).high < mean.high
    assert (level_over_seeds(values).low, level_over_seeds(values).high) == (0.0, 1.0)
    assert np.isnan(mean_over_seeds([0.5]).low)
    assert mean_over_seeds([float("nan")]).n == 0


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [
        ([(0.1, 0.2)], Verdict.HOLDS),
        ([(0.1, 0.2), (-0.1, 0.2)], Verdict.OPEN),
        ([(0.1, 0.2), (-0.2, -0.1)], Verdict.FAILS),
        ([(float("nan"), float("nan"))], Verdict.OPEN),
    ],
)
def test_verdicts(intervals, verdict):
    assert judge(*(Mean((a + b) / 2, a, b, 5) for a, b in intervals)) is verdict


def test_claims_about_shares():
    def entry(x, seed, auc, fairness):
        levels = dict.fromkeys(CONSTRAINTS, fairness)
        return Entry("toy", True, "inter", SHARE, seed, {"x": x}, auc, levels, 0.0)

    estimates = {0.0: (0.8, 0.5), 1.0: (0.7, 0.9), 2.0: (0.5, 0.6)}
    entries = [
        entry(x, seed, auc + seed / 1000 * (1 + x), fairness + seed / 500 * (1 + x))
        for x, (auc, fairness) in estimates.items()
        for seed in range(4)
    ]
    claims = {claim.text: claim for claim in about_shares("toy", entries)}
    assert [c.verdict for c in claims.values()] == [Verdict.HOLDS] * 3
    assert claims["x = 2 is the worst"].estimate.value == pytest.approx(0.2 - 0.0015)


def test_claims_about_methods():
    estimates = {
        "plain": (0.80, 0.50), "item weights": (0.60, 0.55),
        "exposure lp": (0.70, 0.60), "lagrangian": (0.65, 0.95), REWEIGHTED: (0.75, 0.90),
    }  # fmt: skip

    def entry(method, constraint, seed):
        auc, fairness = estimates[method]
        wobble = 0.002 * seed * (1 + list(estimates).index(method))
        levels = dict.fromkeys(CONSTRAINTS, fairness + wobble)
        return Entry("toy", True, constraint, method, seed, {}, auc + wobble, levels, 0.0)

    entries = [entry(m, c, seed) for m in estimates for c in CONSTRAINTS for seed in range(4)]
    claims = about_methods("toy", entries)
    assert {claim.constraint for claim in claims} == set(CONSTRAINTS)
    of = {claim.text: claim for claim in claims if claim.constraint == "intra"}
    shift = 0.003  # of the wobbles' means from one method to the next
    for text, gain, cost, verdict in [
        ("reweighted is fairer than plain", 0.40 + 4 * shift, -0.038, Verdict.HOLDS),
        ("item weights are poor", 0.35 + 3 * shift, 0.159, Verdict.HOLDS),
        ("reweighted is fairer than exposure lp", 0.30 + 2 * shift, 0.056, Verdict.HOLDS),
        ("reweighted is fairer than lagrangian", -0.05 + shift, 0.103, Verdict.FAILS),
    ]:
        assert of[text].estimate.value == pytest.approx(gain)
        assert f"AUC above its: {cost:.3f} [" in of[text].measured
        assert of[text].verdict is verdict
    assert of["reweighted has the highest test fairness"].verdict is Verdict.FAILS
    assert (
        "that of lagrangian, the best baseline"
        in of["reweighted has the highest test fairness"].measured
    )
    assert of["reweighted is on the Pareto front"].verdict is Verdict.HOLDS
    assert of["exposure lp loses utility"].verdict is Verdict.HOLDS


def test_claims_are_read_back_from_json(done, tmp_path):
    path, claims = tmp_path / "claims.json", list(done[1].claims)
    assert _resume_claims(path, lambda: claims) == claims
    assert str(_resume_claims(path, pytest.fail)) == str(claims)  # NaN is not equal to itself
    path.write_text(json.dumps([]))
    with pytest.raises(InputError, match=r"not in format .pairity claims 1.\. Delete it"):
        _resume_claims(path, pytest.fail)


def test_spreads_are_compared():
    rng = np.random.default_rng(0)
    wide, narrow = rng.normal(size=30), 0.1 * rng.normal(size=30)
    gap = spread_difference(wide, narrow)
    assert gap.low > 0.4
    assert spread_difference(narrow, wide).high < -0.4
    assert np.isnan(spread_difference([1.0], [2.0]).value)


def test_the_theorem_on_synthetic_data():
    known, learned, close = checks.theorem(3)
    assert known.estimate.value > 0.005
    assert learned.estimate.value > 0.005
    assert close.verdict is Verdict.HOLDS


def test_no_lambda_of_a_grid_is_fairer_than_reweighted(setting):
    train, *_ = split_in_turn(0, setting.queries, TEST, VALIDATION)
    best = checks.brute_force(train, "statistical", np.arange(0.0, 4.0, 0.1))
    assert 0.8 < best <= 1.0
    (claim, *_) = checks.narrow_root(setting, 1)
    assert claim.estimate.value > 0


def test_many_groups_are_measured_on_queries_that_the_rankers_have_not_seen():
    data = make_biased_ranking(60, 30, n_groups=3, strength=2, separation=2, random_state=0)
    for claim in checks.many_groups(Setting("made", True, data.queries(), 1), 100):
        assert claim.estimate.low < claim.estimate.value < claim.estimate.high
        assert claim.estimate.value > 0.05
        assert "6 ordered group pairs" in claim.text
        assert "60 queries held out in 5 folds" in claim.measured


# --- the command --------------------------------------------------------------------------------


def test_the_command_says_what_is_wrong(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRITY_DATA", str(tmp_path))
    assert main(["reproduce", "--only", "nothing", "--output", str(tmp_path / "out")]) == 2
    assert "There is no data set 'nothing'. Choose from TREC" in capsys.readouterr().err
    assert main(["reproduce", "--seeds", "0", "--output", str(tmp_path / "out")]) == 2
    assert "n_seeds must be a whole number, 1 or greater (got 0)" in capsys.readouterr().err
    never = ["--only", "MSLR", "--attribute", "with"]
    assert main(["reproduce", *never, "--output", str(tmp_path / "out")]) == 2
    assert "MSLR's groups are not among its features" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "--help"])
    assert stopped.value.code == 0
    assert "pairity reproduce --quick" in capsys.readouterr().out


def test_the_command_on_real_data(shared_data, tmp_path, capsys):
    out = tmp_path / "paper"
    asked = ["--quick", "--seeds", "1", "--only", "Engineering Students", "--jobs", "1"]
    done = main(["reproduce", *asked, "--data", str(shared_data), "--output", str(out)])
    assert done == 0
    assert "not decided" in capsys.readouterr().out
    assert (out / "frontier.png").stat().st_size > 10_000
