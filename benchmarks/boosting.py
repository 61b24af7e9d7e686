"""FairRanker around LightGBM and XGBoost, against one plain fit of the same estimator."""

import json
import os
import subprocess
import sys

from benchmarks.tools import markdown

TITLE = "FairRanker around boosters (300,000 rows × 136 features, 120 items a query, 200 trees)"
TREES = 200
ROUNDS = 40
TRAIN, TEST = 300_000, 60_000

# Each run is a separate process, so that its peak memory is that of the run.
CODE = """
import json, resource, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
from benchmarks.tools import biased_table
from pairity import FairRanker, audit
engine, mode, constraint, trees, n_train, n_test = sys.argv[1:4] + [int(n) for n in sys.argv[4:]]
X, y, qid, group = biased_table(n_train + n_test, 136)
test = {name: values[n_train:] for name, values in
        dict(X=X, y=y, qid=qid, sensitive_features=group).items()}
X, y, qid, group = (values[:n_train].copy() for values in (X, y, qid, group))
if engine == "LightGBM":
    from lightgbm import LGBMRanker
    estimator = LGBMRanker(n_estimators=trees, n_jobs=2, random_state=0, verbose=-1)
else:
    from xgboost import XGBRanker
    estimator = XGBRanker(n_estimators=trees, n_jobs=2, random_state=0)
small = np.arange(2400)
FairRanker(estimator.__class__(n_estimators=3), constraint, max_rounds=1, progress=False).fit(
    X[small], y[small], qid=qid[small], sensitive_features=group[small])  # compiles the kernels
began = time.perf_counter()
n_runs = 1
if mode == "plain":
    sizes = np.bincount(qid)
    model = estimator.fit(X, y, group=sizes[sizes > 0])
else:
    out_of_fold = mode == "out of fold"
    model = FairRanker(estimator, constraint, schedule="interleaved" if out_of_fold else mode,
                       validation="auto" if out_of_fold else None, progress=False)
    model.fit(X, y, qid=qid, sensitive_features=group)
    n_runs = len(model.history_)
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
def look(X, y, qid, sensitive_features):
    found = audit(y, np.asarray(model.predict(X), dtype=float), qid=qid,
                  sensitive_features=sensitive_features, k=10, n_resamples=0)
    return [found.violation[constraint], found.auc, found.ndcg[10]]
print(json.dumps(dict(seconds=seconds, peak=peak, n_runs=n_runs,
                      train=look(X, y, qid, group), test=look(**test))))
"""


def measure(engine, mode, constraint):
    done = subprocess.run(
        [sys.executable, "-c", CODE, engine, mode, constraint, *map(str, (TREES, TRAIN, TEST))],
        capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def run():
    rows = []
    for engine in ("LightGBM", "XGBoost"):
        for constraint in ("statistical", "inter"):
            plain = measure(engine, "plain", constraint)
            for mode in ("plain", "retrain", "interleaved", "out of fold"):
                found = plain if mode == "plain" else measure(engine, mode, constraint)
                on_train, on_test = found["train"], found["test"]
                rows.append(
                    [
                        engine, constraint, mode, f"{found['seconds']:.0f}",
                        f"{found['seconds'] / plain['seconds']:.2f}", found["n_runs"],
                        f"{found['peak'] / plain['peak']:.2f}", f"{on_train[0]:.4f}",
                        f"{on_test[0]:.4f}", f"{on_test[1]:.4f}", f"{on_test[2]:.4f}",
                    ]
                )  # fmt: skip
    header = [
        "engine", "constraint", "fit", "seconds", "÷ plain", "training runs", "peak memory ÷ plain",
        "violation, training", "violation, test", "AUC, test", "NDCG@10, test",
    ]  # fmt: skip
    note = (
        "2,500 training and 500 test queries, two groups, tolerance 0.01 on the training queries "
        "or, in the last row of each, out of fold, one seed, two threads, OMP_WAIT_POLICY=PASSIVE. "
        "“Plain” is the engine's own estimator with its own objective (lambdarank, rank:ndcg). "
        "Each row is a separate process, timed from arrays to model; the peak is the process's."
    )
    return markdown(header, rows) + "\n\n" + note
