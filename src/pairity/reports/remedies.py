"""list_remedies: what may reach further than a fit that missed its tolerance, as methods to try."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

from sklearn.base import clone

from pairity.baselines.methods import Method, Scorer, as_method
from pairity.comparisons.catalogue import METHODS
from pairity.constraints import as_constraint
from pairity.data.queries import Queries
from pairity.rankers.lightgbm import LightGBMRanker
from pairity.rankers.linear import LinearRanker
from pairity.reweighting.fair_ranker import FairRanker
from pairity.reweighting.limits import in_memory, long_lists_rule, with_group_features
from pairity.reweighting.outcomes import Outcome

# Conventions: up to these sizes a remedy takes seconds.
MOST_ITEMS = 50_000  # of the training queries
_LONGEST_LIST = 1_000  # that is post-processed


class Remedy(NamedTuple):
    """A method to try, and what it is in words."""

    name: str
    method: Method
    note: str


def list_remedies(
    model: FairRanker, train: Queries, test: Queries, most_items: int = MOST_ITEMS
) -> list[Remedy]:
    """What to try, without tuning, if the fit missed its tolerance; otherwise nothing.

    Nothing is tried either if the violation is within the noise, or if the training queries have
    more than `most_items` items, are on workers, or have features in files.
    """
    outcome = model.outcome_
    if not outcome.limits or outcome.kind is Outcome.WITHIN_NOISE:
        return []
    if not in_memory(train) or train.n_items > most_items:
        return []
    return list(_candidates(model, train, test))


def _candidates(model: FairRanker, train: Queries, test: Queries) -> Iterator[Remedy]:
    def refit(**changes: Any) -> Method:
        return as_method(clone(model).set_params(checkpoint=None, progress=False, **changes))

    reversible = getattr(model.ranker_, "reversible", False)
    if reversible and model.weighting not in ("auto", "reversible"):
        note = f"The same fit with reversible weights in place of {model.weighting!r}."
        yield Remedy("weighting='reversible'", refit(weighting="reversible"), note)
    if long_lists_rule(as_constraint(model.constraint), train):
        note = "The same fit with training pairs that have the same total weight in every query."
        yield Remedy("query_weight='equal'", _with_equal_queries(refit()), note)
    if type(model.ranker_) is LinearRanker and find_spec("lightgbm"):
        note = "The same fit of LightGBM, with its default trees and the logistic loss."
        yield Remedy("LightGBM", _lightgbm(refit), note)
    note = "The same fit with the group among the features, which the law may forbid."
    yield Remedy("group as a feature", _with_group(refit()), note)
    if test.layout.longest <= _LONGEST_LIST:
        fitted = Method("reweighted", lambda *_: lambda queries: model.predict(queries.X))
        method = METHODS["exposure lp"].make(model.constraint, fitted)
        note = "This model's lists, reordered at random for equal exposure of groups; one draw."
        yield Remedy("post-processing", method, note)


def _with_equal_queries(method: Method) -> Method:
    return Method(method.name, lambda train, seed: method.fit(train.with_equal_queries(), seed))


def _lightgbm(refit: Callable[..., Method]) -> Method:
    def fit(train: Queries, random_state: int) -> Scorer:
        from lightgbm import LGBMRanker

        # On a machine with other work, 600 and 24,608 items took five to ten times as long with
        # LightGBM's own choice of threads.
        engine = LGBMRanker(random_state=random_state, n_jobs=1, verbose=-1)
        ranker = LightGBMRanker(engine, loss="logistic")  # which takes any labels
        return refit(ranker=ranker).fit(train, random_state)

    return Method("reweighted", fit)


def _with_group(method: Method) -> Method:
    def fit(train: Queries, random_state: int) -> Scorer:
        scorer = method.fit(with_group_features(train), random_state)
        return lambda queries: scorer(with_group_features(queries.with_groups_of(train)))

    return Method(method.name, fit, needs_group=True)
