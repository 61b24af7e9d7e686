"""How far a violation falls on unseen queries, and what that costs: the forms of pair weights.

Every cell is a data set, a ranker and a constraint, with or without the attribute among the
features. Queries are split 70 to 30 at random; `star` also by school, because its pupils return in
later grades. Nothing is tuned: all settings are defaults. The defaults were chosen on the data sets
marked with *, whose held-out queries were seen on the way. The violation on few held-out queries is
mostly noise, so the floor of the held-out queries and, for two groups, the mean signed gap stand
beside it.

PAIRITY_SPLITS sets the number of splits, PAIRITY_CELLS a part of the names of the cells to run, and
PAIRITY_LAGRANGIAN the number of splits on which the Lagrangian, which takes as long as a hundred
plain fits, is run. "Trained on all" is the default trained on all queries, the held-out ones
included: what it leaves there is noise that no ranker can know. Every fit is kept in the file that
PAIRITY_ROWS names, and not repeated. The fits of the printed table are kept in reach.jsonl.gz:
PAIRITY_ROWS=benchmarks/reach.jsonl.gz prints it again without a fit.
"""

import gzip
import json
import os
import time
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.tools import markdown
from pairity import FairRanker, LinearRanker, Queries
from pairity.baselines import lagrangian
from pairity.constraints import as_constraint, largest_gap, noise_of
from pairity.datasets import (
    BiasedWorld,
    load_engineering_students,
    load_mslr,
    load_trec_w3c,
    make_biased_ranking,
)
from pairity.pairs.cells import mean_auc

TITLE = "Reach: violation and AUC on unseen queries, by the form of the pair weights"
SHARED = Path(os.environ.get("PAIRITY_SHARED", Path(__file__).parents[2] / "shared")) / "data"
N_SPLITS = int(os.environ.get("PAIRITY_SPLITS", "20"))
N_LAGRANGIAN = min(int(os.environ.get("PAIRITY_LAGRANGIAN", "5")), N_SPLITS)
CELLS = os.environ.get("PAIRITY_CELLS", "")
ROWS = Path(os.environ.get("PAIRITY_ROWS", ""))
METHODS = ("plain", "paper", "default", "trained on all", "Lagrangian")


def run():
    rows, kept = [], _kept()
    for name in DATA:
        for attribute in ("no", "yes"):
            for ranker in ("linear", "LightGBM"):
                data = None
                for constraint in ("statistical", "inter"):
                    cell = (name, attribute, ranker, constraint)
                    if CELLS in " | ".join(cell):
                        data = data or _data(name, attribute, ranker)
                        _run_cell(cell, data, kept)
                    rows += _row(cell, kept)
    header = [
        "data", "attribute", "ranker", "constraint", *METHODS, "default − paper",
        "default − Lagrangian", "floor", "fits", "time",
    ]  # fmt: skip
    return markdown(header, rows) + (
        f"\n\nHeld-out violation at held-out AUC, means of {N_SPLITS} splits; in brackets, for two "
        "groups, the mean signed gap; ± is a standard error. For all others it "
        "is that of the paired difference from the plain ranker's violation. Trained on all: the "
        "default trained on all queries, those held out included, measured on the same ones, so "
        "that what it leaves is noise. The differences of "
        "the violation (and of AUC) are paired by split too. The Lagrangian was run for the linear "
        "ranker only, and in some cells on fewer splits. Floor: what noise between the "
        "held-out queries produces by itself. Fits: retrainings of the default. Time: seconds of "
        "the default divided by those of the plain ranker (median). No setting was tuned for any "
        "method."
    )


def _kept():
    """The fits of earlier runs: results by cell, method and split."""
    if not ROWS.is_file():
        return {}
    with gzip.open(ROWS, "rt") as file:
        return {tuple(key): result for key, result in map(json.loads, file)}


def _keep(kept, key, result):
    kept[key] = result
    if str(ROWS) != ".":
        with gzip.open(ROWS, "at") as file:
            file.write(json.dumps([key, result]) + "\n")


def _data(name, attribute, ranker):
    X, y, qid, group, unit = DATA[name](attribute == "yes")
    return X, _graded(y, qid) if ranker == "LightGBM" else y, qid, group, unit


def _run_cell(cell, data, kept):
    """Fit every method on every split of which no result is kept."""
    X, y, qid, group, _ = data
    _, _, ranker, constraint = cell
    everything = Queries.from_arrays(X, y, qid=qid, sensitive_features=group)
    for seed in range(N_SPLITS):
        methods = METHODS[: 3 if ranker != "linear" else 5 if seed < N_LAGRANGIAN else 4]
        missing = [method for method in methods if (*cell, method, seed) not in kept]
        if missing:
            train, test = _split(*data, seed)
        for method in missing:
            start = time.perf_counter()
            known = everything if method == "trained on all" else train
            model = _fit(method, ranker, constraint, known)
            seconds = time.perf_counter() - start
            scores = model(test) if method == "Lagrangian" else model.predict(test.X)
            noise = noise_of(as_constraint(constraint), test, scores)
            signed = noise.delta[0, 1] - noise.delta[1, 0] if len(noise.delta) == 2 else None
            history = getattr(model, "history_", ())
            result = {
                "violation": largest_gap(noise.delta), "auc": mean_auc(test, scores),
                "signed": signed, "floor": noise.floor, "seconds": seconds,
                "fits": sum(bool(completed.number) for completed in history),
            }  # fmt: skip
            digits = {name: value and round(float(value), 5) for name, value in result.items()}
            _keep(kept, (*cell, method, seed), digits)
    print(*(_row(cell, kept) or [cell])[0], sep=" | ", flush=True)


def _row(cell, kept):
    """The row of a cell, in a list that is empty if there are no results."""
    values = {
        method: pd.DataFrame(
            {seed: kept.get((*cell, method, seed), {}) for seed in range(N_SPLITS)}
        ).T.apply(pd.to_numeric)
        for method in METHODS
    }
    if not len(values["default"].columns):
        return []
    plain, paper, default, _, lagrangian_ = values.values()
    shown = [_show(table, plain if table is not plain else None) for table in values.values()]
    ratio = (default["seconds"] / plain["seconds"]).median()
    return [
        [
            *cell, *shown, _difference(default, paper), _difference(default, lagrangian_),
            f"{default['floor'].mean():.3f}", f"{default['fits'].mean():.1f}", f"{ratio:.1f}",
        ]
    ]  # fmt: skip


def _show(table, plain):
    if not len(table.columns):
        return ""
    shown = f"{table['violation'].mean():.3f}"
    if plain is not None:
        shown += f" ± {(table['violation'] - plain['violation']).sem():.3f}"
    if table["signed"].notna().any():
        shown += f" ({table['signed'].mean():+.3f})"
    return f"{shown} at {table['auc'].mean():.3f}"


def _difference(table, other):
    """The paired difference of the violation, and of AUC, over the splits that both have."""
    if not len(other.columns):
        return ""
    change = (table - other).dropna(subset="violation")
    violation, auc = change["violation"], change["auc"]
    splits = "" if len(change) == N_SPLITS else f", {len(change)} splits"
    return f"{violation.mean():+.3f} ± {violation.sem():.3f} ({auc.mean():+.3f}){splits}"


def _fit(method, ranker, constraint, train):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method == "Lagrangian":
            return lagrangian(constraint).fit(train, 0)
        options = {"plain": {"max_rounds": 0}, "paper": {"weighting": "paper"}}.get(method, {})
        return FairRanker(_ranker(ranker), constraint, progress=False, **options).fit(train)


def _ranker(name):
    if name == "linear":
        return LinearRanker()
    from lightgbm import LGBMRanker

    return LGBMRanker(n_estimators=80, num_leaves=15, verbose=-1)


def _graded(y, qid):
    """Labels cut at the 50th and 80th percentile of each query."""
    if len(np.unique(y)) <= 5:
        return y
    share = pd.Series(y).groupby(np.asarray(qid)).rank(pct=True)
    return ((share > 0.5).astype(int) + (share > 0.8).astype(int)).to_numpy()


def _split(X, y, qid, group, unit, seed):
    units = np.unique(unit)
    np.random.default_rng(seed).shuffle(units)
    test = np.isin(unit, units[: round(0.3 * len(units))])
    return [
        Queries.from_arrays(X[rows], y[rows], qid=qid[rows], sensitive_features=group[rows])
        for rows in (~test, test)
    ]


def _with_attribute(X, group, attribute):
    if not attribute:
        return np.asarray(X, dtype=float)
    return np.column_stack([X, *(group == name for name in np.unique(group)[1:])]).astype(float)


@lru_cache
def _read(name):
    return pd.read_csv(SHARED / "schools" / f"{name}.csv.gz")


def _star(group, attribute):
    table = _read("star").dropna(subset=["math", "read", "ses"])
    table = table[table["eth"].isin(["W", "B"])]
    features = [
        table["read"], table["cltype"] == "small", table["cltype"] == "reg+A",
        table["exp"].fillna(table["exp"].median()), table["birthy"].fillna(1980),
    ]  # fmt: skip
    if group != "ses":
        features.append(table["ses"] == "F")
    groups = table[group].to_numpy(str)
    qid = (table["sch"].astype(str) + " " + table["gr"].astype(str)).to_numpy()
    X = _with_attribute(np.column_stack(features), groups, attribute)
    return X, table["math"].to_numpy(float), qid, groups, table["sch"].to_numpy()


def _by_query(data):
    """Split at random, as method.md does, although pupils then stand on both sides."""
    X, y, qid, groups, _ = data
    return X, y, qid, groups, qid


def _schools(name, features, label, query, group, attribute):
    table = _read(name)
    groups, qid = table[group].to_numpy(str), table[query].to_numpy()
    X = np.column_stack([table[column] for column in features if column != "Sex"])
    if "Sex" in features:
        X = np.column_stack([X, table["Sex"] == "Female"])
    return _with_attribute(X, groups, attribute), table[label].to_numpy(float), qid, groups, qid


def _generated(attribute):
    data = make_biased_ranking(
        300, 60, n_groups=5, strength=1.0, separation=1.0, random_state=0,
        world=BiasedWorld(n_features=8, merit_gap=0.5),
    )  # fmt: skip
    groups = data.sensitive_features.astype(str)
    return _with_attribute(data.X, groups, attribute), data.y, data.qid, groups, data.qid


def _loaded(load, **options):
    def read(attribute):
        queries = load(data_home=SHARED, **options).queries()
        groups = np.array(queries.groups)[queries.group]
        X = _with_attribute(queries.X, groups, attribute)
        return X, queries.y, queries.query, groups, queries.query

    return read


DATA = {
    "star, ethnicity *": lambda attribute: _star("eth", attribute),
    "star, ethnicity, split by query *": lambda attribute: _by_query(_star("eth", attribute)),
    "star, free lunch": lambda attribute: _star("ses", attribute),
    "MathAchieve *": lambda attribute: _schools(
        "MathAchieve", ("SES", "Sex"), "MathAch", "School", "Minority", attribute
    ),
    "Chem97": lambda attribute: _schools(
        "Chem97", ("gcsescore", "age"), "score", "school", "gender", attribute
    ),
    "generator, 5 groups *": _generated,
    "Engineering Students": _loaded(load_engineering_students, group_as_feature=False),
    "TREC": _loaded(load_trec_w3c),
    "MSLR sample": _loaded(load_mslr, version="sample"),
}
