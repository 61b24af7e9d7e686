"""The main job on built-in data: what ``pairity demo`` shows.

Labels are biased towards one of two groups by a known amount. A plain ranker learns that bias; the
reweighted one is trained on the same labels. Both are audited on held-out queries, against the
biased labels and against the unbiased ones, which neither of them has seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pairity._utils.progress import Show
from pairity.audits.audit import Audit, audit
from pairity.audits.comparison import compare
from pairity.audits.estimates import Estimate
from pairity.data.queries import Queries
from pairity.datasets import make_biased_ranking
from pairity.rankers.linear import LinearRanker
from pairity.reweighting.fair_ranker import FairRanker


@dataclass(frozen=True, eq=False)
class Demo:
    """What came of it; prints as the whole story.

    Attributes
    ----------
    seed : int
    train, test : Queries
    plain, fair : FairRanker
        The plain ranker, and the reweighted one.
    audits : dict from "plain" and "reweighted" to Audit, on the test queries
    unbiased : dict from the same names to Figure, AUC on the unbiased labels
    """

    seed: int
    train: Queries
    test: Queries
    plain: FairRanker
    fair: FairRanker
    audits: dict[str, Audit]
    unbiased: dict[str, Estimate]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python."""
        return {
            "seed": self.seed,
            "outcome": str(self.fair.outcome_),
            "pair_weights": self.fair.pair_weights_.to_dict(),
            "unbiased_auc": {name: estimate.value for name, estimate in self.unbiased.items()},
            "audits": {name: held.to_dict() for name, held in self.audits.items()},
        }

    def __str__(self) -> str:
        return "\n\n".join(
            [
                f"Synthetic data, seed {self.seed}: {self.train.n_queries} queries to train on and "
                f"{self.test.n_queries} to test on, 60 items each.\nThe labels favour "
                f"{self.train.groups[0]!r} by one standard deviation; the unbiased labels are "
                "known.",
                compare(self.audits, {"AUC on the unbiased labels": [*self.unbiased.values()]}),
                f"How the fit ended, after {len(self.fair.history_) - 1} retrainings: "
                f"{self.fair.outcome_}",
                "What was learnt: how much a training pair counts, by its preferred and other "
                f"item\n{self.fair.pair_weights_}",
                "Everything else that the audit of the reweighted ranker has to say:",
                str(self.audits["reweighted"]),
            ]
        )


def demonstrate(seed: int = 0, progress: Show = "auto") -> Demo:
    """Train both rankers and audit them.

    Parameters
    ----------
    seed : int, of the data and of the split
    progress : {"auto"} or bool
    """
    data = make_biased_ranking(300, 60, strength=1.0, separation=2.0, random_state=seed)
    train, test = data.queries().split(0.3, random_state=seed)
    _, unbiased = data.unbiased().split(0.3, random_state=seed)
    plain = FairRanker(LinearRanker(), "statistical", max_rounds=0, progress=False).fit(**train)
    fair = FairRanker(LinearRanker(), "statistical", tolerance=0.01, progress=progress)
    fair.fit(**train)
    models = {"plain": plain, "reweighted": fair}
    audits = {name: _audit(model, test, f"the {name} ranker") for name, model in models.items()}
    against = {name: _audit(model, unbiased).estimate("auc") for name, model in models.items()}
    return Demo(seed, train, test, plain, fair, audits, against)


def _audit(model: FairRanker, queries: Queries, name: str = "") -> Audit:
    return audit(queries, model.predict(queries.X), name=name)
