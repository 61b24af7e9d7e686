"""Dask on several processes of this machine: the same models, what it costs, a bill on paper."""

import logging
import os
import pickle
import time
import warnings
from contextlib import contextmanager

import numpy as np

from benchmarks.tools import biased_table, markdown
from pairity import FairRanker, InterGroup, LinearRanker, Queries
from pairity.pairs.cells import mean_auc
from pairity.reweighting.solvers import PlainStep

TITLE = "More than one machine (Dask, worker processes on this one)"

N_BINS = 32
SAME = 36_000, 12  # rows, features: the same model
COST = 240_000, 20  # the overhead
TREES = 50


def run():
    warnings.simplefilter("ignore")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # for workers too
    logging.getLogger("distributed").setLevel(logging.ERROR)
    rows = [row for n in (2, 4) for row in same_models(n)]
    same = markdown(
        ["engine", "workers", "bins", "rounds", "scores apart", "correlation", "violation apart",
         "AUC apart"], rows,
    )  # fmt: skip
    costs, bill = overhead()
    return (
        f"{same}\n\n{SAME[0]:,} rows × {SAME[1]} features, inter-group, two rounds of the plain "
        "update. “Codes” are features cut into "
        f"{N_BINS} bins beforehand, “own” those that each engine finds by itself: LightGBM finds "
        "them on a part of the rows, XGBoost by a sketch, so that they differ from one machine's. "
        "Scores apart: the largest difference of any item's score from one machine's; violation "
        "and AUC apart: the largest in any round. LightGBM with min_child_samples=0 and "
        "min_child_weight=1, since it estimates the items of a leaf on several machines.\n\n"
        f"{costs}\n\n{bill}"
    )


# --- the same model ------------------------------------------------------------------------------


def same_models(n_workers):
    X, y, qid, group = biased_table(*SAME)
    codes = coded(X)
    with cluster(n_workers):
        for name in ("linear", "xgboost", "lightgbm"):
            for bins, features in (("codes", codes), ("own", X)):
                if bins == "own" and (name == "linear" or n_workers > 2):
                    continue
                yield [name, n_workers, bins, *compared(name, features, y, qid, group, n_workers)]


def compared(name, X, y, qid, group, n_workers):
    options = dict(constraint=InterGroup(), tolerance=0.0, max_rounds=2, solver=PlainStep(4.0),
                   schedule="retrain", validation=None, progress=False)  # fmt: skip
    many, one = engines(name, 30, 1)
    there = FairRanker(many, **options).fit(**spread(X, y, qid, group, 2 * n_workers))
    here = FairRanker(one, **options).fit(X, y, qid=qid, sensitive_features=group)
    scores, expected = there.predict(X), here.predict(X)
    both = list(zip(there.history_, here.history_, strict=True))
    apart = np.abs(scores - expected).max()
    queries = Queries.from_arrays(None, y, qid=qid, sensitive_features=group)
    assert abs(mean_auc(queries, scores) - there.history_[-1].auc) < 1e-12 or apart
    return [
        len(both),
        f"{apart:.0e}",
        f"{np.corrcoef(scores, expected)[0, 1]:.4f}",
        f"{max(np.nanmax(np.abs(a.delta - b.delta)) for a, b in both):.0e}",
        f"{max(abs(a.auc - b.auc) for a, b in both):.0e}",
    ]


def coded(X):
    """Each feature as the number of its quantile bin."""
    cuts = np.quantile(X, np.linspace(0, 1, N_BINS + 1)[1:-1], axis=0)
    return np.column_stack(
        [np.searchsorted(cuts[:, at], X[:, at]) for at in range(X.shape[1])]
    ).astype(np.float64)


def engines(name, n_trees, n_threads):
    """The model for workers, and the same for one machine."""
    if name == "linear":
        return LinearRanker(), LinearRanker()
    if name == "xgboost":
        from xgboost import XGBRanker
        from xgboost.dask import DaskXGBRanker

        settings = dict(n_estimators=n_trees, objective="rank:pairwise")
        return DaskXGBRanker(**settings), XGBRanker(**settings, n_jobs=n_threads)
    from lightgbm import DaskLGBMRanker, LGBMRanker

    settings = dict(n_estimators=n_trees, min_child_samples=0, min_child_weight=1.0, verbose=-1)
    return DaskLGBMRanker(**settings), LGBMRanker(**settings, n_jobs=n_threads)


# --- what it costs -------------------------------------------------------------------------------


def overhead():
    X, y, qid, group = biased_table(*COST)
    queries = Queries.from_arrays(X, y, qid=qid, sensitive_features=group)
    millions = queries.n_pairs / 1e6
    rows, measured = [], {}
    with cluster(2):
        for name in ("linear", "xgboost", "lightgbm"):
            options = dict(tolerance=0.0, max_rounds=1, solver=PlainStep(4.0), schedule="retrain",
                           validation=None, progress=False)  # fmt: skip
            many, one = engines(name, TREES, 2)
            collections = spread(X, y, qid, group, 4)
            FairRanker(many, **options).fit(**collections)  # compiles and imports
            began = time.perf_counter()
            there = FairRanker(many, **options).fit(**collections)
            dask_seconds = time.perf_counter() - began
            began = time.perf_counter()
            here = FairRanker(one, **options).fit(X, y, qid=qid, sensitive_features=group)
            seconds = time.perf_counter() - began
            rounds = [sum(each.seconds for each in model.history_) for model in (there, here)]
            ratios = [dask_seconds / seconds, rounds[0] / rounds[1]]
            estimates = [f"{seconds:.1f}", f"{dask_seconds:.1f}", *(f"{r:.2f}" for r in ratios)]
            rows.append([name, *estimates])
            measured[name] = rounds[0] / 2
    table = markdown(
        ["engine", "one machine, 2 threads, s", "2 workers × 1 thread, s", "ratio",
         "ratio of the rounds alone"], rows,
    )  # fmt: skip
    said = (
        f"{COST[0]:,} rows × {COST[1]} features, {millions:.1f} million pairs, {TREES} trees, two "
        "trainings, OMP_WAIT_POLICY=PASSIVE. The first ratio has everything: sending the table, "
        "checks, binning."
    )
    return f"{table}\n\n{said}", on_paper(measured, millions, bytes_per_row(queries))


def bytes_per_row(queries):
    """Of the arrays that a worker holds for training, before an engine bins them."""
    layout = vars(queries.layout).values()
    arrays = [queries.X, queries.y, queries.query, queries.group, *layout]
    return sum(getattr(each, "nbytes", 0) for each in arrays) / queries.n_items


def on_paper(measured, millions, raw):
    """A billion rows on 100 machines of 16 cores, from what was measured here."""
    rows_each, features, cores = 1e9 / 100, COST[1], 16
    scale = rows_each / (COST[0] / 2) / cores  # a worker here: half of the rows on one core
    sums = len(pickle.dumps(np.zeros((2, 5))))
    found = []
    for name, seconds in measured.items():
        training = seconds * scale
        traffic = {
            "linear": 8.0 * (features + 1) * 60,
            "xgboost": 16.0 * 256 * features * 63 * TREES,
            "lightgbm": 16.0 * 255 * features * 30 * TREES,
        }[name]
        found.append([name, f"{training:.0f}", f"{6 * training / 60:.0f}", f"{traffic / 1e6:.2g}"])
    table = markdown(
        ["engine", "s a training", "minutes, 6 trainings", "MB sent by a worker a training"], found
    )
    per_million = {name: 2 * seconds / millions for name, seconds in measured.items()}
    return (
        f"**A billion rows on 100 machines, on paper** ({features} features, {TREES} trees, 16 "
        f"cores each):\n\n{table}\n\nFrom: {rows_each / 1e6:.0f} million rows a machine, "
        f"{raw:.0f} bytes a row before binning ({raw * rows_each / 1e9:.1f} GB a machine), "
        + ", ".join(f"{v:.2f} core seconds per million pairs ({k})" for k, v in per_million.items())
        + f"; a violation and an AUC are {sums} bytes from each machine, "
        f"{100 * sums / 1024:.0f} KB for all. Assumed: queries as long as here, all cores busy, a "
        "network that hides behind the work (histograms: 16 bytes × bins × features × nodes a "
        "tree, as the engines send them; linear: one gradient an evaluation, 60 of them), and the "
        "table in memory. Not measured: 100 machines."
    )


# --- a cluster, and tables on it -----------------------------------------------------------------


@contextmanager
def cluster(n_workers):
    import distributed

    options = dict(threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50)
    with (
        distributed.LocalCluster(n_workers=n_workers, **options) as made,
        distributed.Client(made) as client,
    ):
        yield client


def spread(X, y, qid, group, n_partitions):
    """The table as Dask arrays, cut between queries."""
    import dask.array as da

    cuts = np.flatnonzero(np.r_[True, qid[1:] != qid[:-1]])
    marks = cuts[np.linspace(0, len(cuts), n_partitions + 1)[:-1].astype(int)]
    sizes = tuple(np.diff(np.r_[marks, len(y)]).tolist())
    return {
        "X": da.from_array(X, chunks=(sizes, X.shape[1])),
        "y": da.from_array(y.astype(float), chunks=(sizes,)),
        "qid": da.from_array(qid, chunks=(sizes,)),
        "sensitive_features": da.from_array(group, chunks=(sizes,)),
    }
