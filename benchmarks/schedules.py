"""The two schedules at equal cost: λ between retrainings, or between the trees of a run."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import warnings

import numpy as np

from benchmarks.tools import markdown
from pairity import FairRanker, PairityWarning, audit
from pairity.constraints import CATALOGUE
from pairity.datasets import BiasedWorld, make_biased_ranking

TITLE = "Retraining against interleaving, at equal cost"
SEEDS, RUNS, TREES = range(4), 3, 100


def engines():
    from lightgbm import LGBMRanker
    from xgboost import XGBRanker

    yield "LightGBM", LGBMRanker(n_estimators=TREES, num_leaves=15, random_state=0, verbose=-1)
    yield "XGBoost", XGBRanker(n_estimators=TREES, max_depth=4, random_state=0)


def run():
    """At most three training runs for either: two retrainings behind the plain one, or three."""
    rows = []
    for engine, estimator in engines():
        for n_groups in (2, 3):
            found = {"retrain": [], "interleaved": []}
            plain = []
            for seed in SEEDS:
                data = make_biased_ranking(
                    400, 40, n_groups=n_groups, separation=2.0,
                    world=BiasedWorld(n_features=10, merit_gap=0.3), random_state=seed,
                ).queries()  # fmt: skip
                train, test = data.split(0.4, random_state=seed)
                for constraint in CATALOGUE:
                    for schedule, measured in found.items():
                        model = FairRanker(
                            estimator, constraint, schedule=schedule, validation=0.25,
                            max_rounds=RUNS - (schedule == "retrain"), random_state=seed,
                            progress=False,
                        )  # fmt: skip
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore", PairityWarning)
                            model.fit(**train)
                        seen = audit(test, model.predict(test.X), n_resamples=0)
                        measured.append(
                            [
                                model.violation_, model.violation_ <= 0.01, len(model.history_),
                                seen.violation[constraint], seen.auc,
                            ]
                        )  # fmt: skip
                        if schedule == "retrain":
                            plain.append(model.history_[0].violation)
            for schedule, measured in found.items():
                held, within, n_runs, violation, auc = np.array(measured).T
                half = 1.96 * violation.std(ddof=1) / np.sqrt(len(violation))
                rows.append(
                    [
                        f"{engine}, K = {n_groups}", schedule, f"{n_runs.mean():.1f}",
                        f"{np.mean(plain):.3f}", f"{held.mean():.4f}", f"{within.mean():.0%}",
                        f"{violation.mean():.4f} ± {half:.4f}", f"{auc.mean():.4f}",
                    ]
                )  # fmt: skip
    header = [
        "ranker", "schedule", "training runs", "violation, plain", "violation, validation",
        "within 0.01", "violation, test", "AUC, test",
    ]  # fmt: skip
    note = (
        f"At most {RUNS} training runs of {TREES} trees each; the four constraints × {len(SEEDS)} "
        "seeds; 180 queries of 40 items to train on, 60 to measure on, 160 to test. Means, with 95 "
        "% intervals over the fits. The plain violation is on the validation queries."
    )
    return markdown(header, rows) + "\n\n" + note
