"""The main job on built-in data: ``python -m pairity.demo``.

Labels are biased towards one of two groups by a known amount. A plain ranker learns that bias; the
reweighted one is trained on the same labels. Both are audited on held-out queries, against the
biased labels and against the unbiased ones, which neither of them has seen.
"""

from __future__ import annotations

import sys
import time

from pairity.audits import Audit, audit
from pairity.comparisons import compare
from pairity.datasets import make_biased_ranking
from pairity.fair_ranker import FairRanker
from pairity.queries import Queries
from pairity.rankers.linear import LinearRanker

SEED = 0


def main() -> None:
    """Train, audit, print."""
    began = time.perf_counter()
    data = make_biased_ranking(300, 60, strength=1.0, separation=2.0, random_state=SEED)
    train, test = data.queries().split(0.3, random_state=SEED)
    _, unbiased = data.unbiased().split(0.3, random_state=SEED)
    _say(
        f"Synthetic data, seed {SEED}: {train.n_queries} queries to train on and {test.n_queries} "
        f"to test on, 60 items each.\nThe labels favour {data.queries().groups[0]!r} by one "
        "standard deviation; the unbiased labels are known.\n"
    )
    plain = FairRanker(LinearRanker(), "statistical", max_rounds=0).fit(**train)
    fair = FairRanker(LinearRanker(), "statistical", tolerance=0.01).fit(**train)
    before = _audit(plain, test, "the plain ranker")
    after = _audit(fair, test, "the reweighted ranker")
    against = [_audit(model, unbiased).figure("auc") for model in (plain, fair)]
    audits = {"plain": before, "reweighted": after}
    _say(compare(audits, {"AUC on the unbiased labels": against}))
    _say(f"\nHow the fit ended, after {len(fair.history_) - 1} retrainings: {fair.outcome_}")
    _say("\nWhat was learnt: how much a training pair counts, by its preferred and other item")
    _say(str(fair.pair_weights_))
    _say("\nEverything else that the audit of the reweighted ranker has to say:\n")
    _say(f"{after}\n\nDone in {time.perf_counter() - began:.1f} s.")


def _audit(model: FairRanker, queries: Queries, name: str = "") -> Audit:
    return audit(queries, model.predict(queries.X), name=name)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
