"""One boosting round with pairity's objective, against the engines' own ranking objectives."""

import json
import os
import subprocess
import sys
import time

import numpy as np

from benchmarks.tools import biased_table, markdown

TITLE = "One boosting round (300,000 rows × 136 features, 120 items a query, two threads)"
ROUNDS, REPEATS = 10, 5


def lightgbm_rounds(X, y, qid, group):
    import lightgbm as lgb

    from pairity import Queries
    from pairity.pairs.losses import LambdaRank, Logistic
    from pairity.rankers._objective import Objective

    data = lgb.Dataset(X, y, group=np.bincount(qid)).construct()
    queries = Queries.from_arrays(None, y, qid=qid, sensitive_features=group)
    params = {"num_leaves": 31, "num_threads": 2, "verbosity": -1, "metric": "None"}

    def train(objective):
        if not isinstance(objective, str):
            pair_objective = Objective(
                queries, objective, lambda *_: np.array([[1.0, 0.7], [1.3, 1.0]])
            )
            objective = lambda scores, _: pair_objective(scores)  # noqa: E731
        lgb.train({**params, "objective": objective}, data, ROUNDS)

    return train, ["lambdarank", LambdaRank(), Logistic()]


def xgboost_rounds(X, y, qid, group):
    import xgboost as xgb

    from pairity import Queries
    from pairity.pairs.losses import LambdaRank, Logistic
    from pairity.rankers._objective import Objective

    data = xgb.QuantileDMatrix(X, y, group=np.bincount(qid))
    queries = Queries.from_arrays(None, y, qid=qid, sensitive_features=group)
    params = {"max_depth": 6, "nthread": 2, "base_score": 0.0, "disable_default_eval_metric": 1}

    def train(objective):
        if isinstance(objective, str):
            xgb.train({**params, "objective": objective}, data, ROUNDS)
            return
        pair_objective = Objective(
            queries, objective, lambda *_: np.array([[1.0, 0.7], [1.3, 1.0]])
        )
        xgb.train(
            params, data, ROUNDS, obj=lambda scores, _: pair_objective(scores.astype(np.float64))
        )

    return train, ["rank:pairwise", "rank:ndcg", LambdaRank(), Logistic()]


def measure():
    """Milliseconds a round, by engine and objective."""
    X, y, qid, group = biased_table(300_000, 136)
    rows = []
    for engine, prepare in (("LightGBM", lightgbm_rounds), ("XGBoost", xgboost_rounds)):
        train, objectives = prepare(X, y, qid, group)
        times = [[] for _ in objectives]
        for _ in range(REPEATS + 1):  # taken in turns; the first is not counted
            for mine, objective in zip(times, objectives, strict=True):
                began = time.perf_counter()
                train(objective)
                mine.append(1e3 * (time.perf_counter() - began) / ROUNDS)
        for objective, mine in zip(objectives, times, strict=True):
            name = objective if isinstance(objective, str) else type(objective).__name__
            rows.append([engine, name, float(np.median(mine[1:]))])
    return rows


def in_a_process(policy):
    """The same in a process whose idle OpenMP threads wait as the policy says."""
    env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if policy:
        env["OMP_WAIT_POLICY"] = policy
    command = [sys.executable, "-m", "benchmarks.trees"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def run():
    default, passive = in_a_process(""), in_a_process("PASSIVE")
    firsts = {}
    rows = []
    for (engine, name, one), (_, _, two) in zip(default, passive, strict=True):
        own = firsts.setdefault(engine, (one, two))
        rows.append(
            [
                engine,
                name if name.islower() else f"pairity {name}",
                f"{one:.0f}",
                f"{one / own[0]:.2f}",
                f"{two:.0f}",
                f"{two / own[1]:.2f}",
            ]
        )
    header = [
        "engine", "objective", "ms a round", "÷ the engine's first",
        "ms, waiting passively", "÷ the engine's first",
    ]  # fmt: skip
    note = (
        f"Median of {REPEATS} runs of {ROUNDS} rounds each, taken in turns, on the same binned "
        "data, once with OpenMP's default way of waiting and once with OMP_WAIT_POLICY=PASSIVE. "
        "Each objective grows its own trees."
    )
    return markdown(header, rows) + "\n\n" + note


if __name__ == "__main__":
    print(json.dumps(measure()))
