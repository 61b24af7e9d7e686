"""How well pairity's LambdaRank ranks without weights, compared with the engines' objectives."""

import os
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy.stats import t as student
from sklearn.datasets import load_svmlight_file

from benchmarks.tools import GRADES, markdown
from pairity import Queries
from pairity.metrics import ndcg
from pairity.rankers.adapters import as_ranker

TITLE = "NDCG@10 of our LambdaRank against the engines' own, all pairs of weight 1"
SEEDS = 6
SHARED = Path(os.environ.get("PAIRITY_SHARED", Path(__file__).parents[2] / "shared")) / "data"


def synthetic(seed):
    """2,000 lists of 30 items, graded as web pages are."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60_000, 20)).astype(np.float32)
    latent = X[:, 0] + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) + 0.5 * X[:, 4:8].sum(axis=1)
    latent += rng.normal(size=len(X))
    y = np.searchsorted(np.quantile(latent, np.cumsum(GRADES)[:-1]), latent)
    return Queries.from_arrays(X, y, qid=np.arange(len(X)) // 30)


@cache
def web_pages(_seed=0):
    path = SHARED / "mslr" / "mslr_sample_182q.svm.gz"
    X, y, qid = load_svmlight_file(str(path), query_id=True, dtype=np.float32)
    return Queries.from_arrays(X.toarray(), y, qid=qid)


@cache
def example(_seed=0):
    """The training and test lists of LightGBM's example, concatenated."""
    folder, X, y, sizes = SHARED / "lightgbm_rank", [], [], []
    for part in ("train", "test"):
        features, labels = load_svmlight_file(str(folder / f"rank.{part}.gz"), n_features=301)
        X.append(features.toarray())
        y.append(labels)
        sizes.append(np.loadtxt(folder / f"rank.{part}.query", dtype=int))
    counts = np.concatenate(sizes)
    qid = np.repeat(np.arange(len(counts)), counts)
    return Queries.from_arrays(np.concatenate(X), np.concatenate(y), qid=qid)


def lightgbm_model(**params):
    from lightgbm import LGBMRanker

    return LGBMRanker(n_jobs=1, random_state=0, verbose=-1, **params)


def xgboost_model(**params):
    from xgboost import XGBRanker

    return XGBRanker(objective="rank:ndcg", n_jobs=1, random_state=0, **params)


def measured(model, train, test):
    """NDCG@10 on the test queries."""
    ordered, _ = train.by_query()
    if hasattr(model, "fit_pairs"):
        model.fit(ordered.X, ordered.y, qid=ordered.query)
    else:
        model.fit(ordered.X, ordered.y, group=np.bincount(ordered.query))
    return float(np.nanmean(ndcg(test, np.asarray(model.predict(test.X), dtype=float), k=10)))


def split(queries, seed):
    """Half of the queries to train on, 600 at most, and all others to test."""
    order = np.random.default_rng(seed).permutation(queries.n_queries)
    n_train = min(600, len(order) // 2)
    return queries.take(order[:n_train]), queries.take(order[n_train:])


DATA = {
    "synthetic": (synthetic, None),
    "MSLR sample": (web_pages, "mslr"),
    "LightGBM's example": (example, "lightgbm_rank"),
}
ENGINES = {
    "LightGBM lambdarank": lightgbm_model,
    "XGBoost rank:ndcg": xgboost_model,
}
TREES = (15, 100)


def run():
    rows = []
    for name, (load, folder) in DATA.items():
        if folder is not None and not (SHARED / folder).is_dir():
            continue
        halves = [split(load(seed), seed) for seed in range(SEEDS)]
        for engine, make in ENGINES.items():
            for n_trees in TREES:
                make_model = partial(make, n_estimators=n_trees)
                pairity = np.array([measured(as_ranker(make_model()), *half) for half in halves])
                own = np.array([measured(make_model(), *half) for half in halves])
                rows.append([name, engine, n_trees, *_compared(pairity, own)])
    header = [
        "data",
        "the engine's own",
        "trees",
        "NDCG@10, own",
        "NDCG@10, pairity",
        "pairity − own",
    ]
    note = (
        f"Mean over {SEEDS} seeds (synthetic: new lists, 600 to train on and 1,400 to test; else "
        "random halves of the same queries, which overlap, so that intervals are narrow), the "
        "difference paired, ± half of its 95 % interval. The engines' defaults on both sides, but "
        "for the number of trees. The engines rank tied items by row; pairity takes the "
        "expectation over their orders, which changes the first tree."
    )
    return markdown(header, rows) + "\n\n" + note


def _compared(pairity, own):
    gap = pairity - own
    half_width = student.ppf(0.975, len(gap) - 1) * np.std(gap, ddof=1) / np.sqrt(len(gap))
    return f"{own.mean():.4f}", f"{pairity.mean():.4f}", f"{gap.mean():+.4f} ± {half_width:.4f}"
