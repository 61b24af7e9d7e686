"""What keeps a violation above the tolerance, from measured facts, and what may help."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from pairity._utils.typing import Array
from pairity.constraints import Constraint, Contrasts, largest_gap
from pairity.data.checks import has_preferences, suggests_equal_queries
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.pairs.cells import mean_auc
from pairity.rankers.linear import LinearRanker
from pairity.reweighting.problem import Problem

if TYPE_CHECKING:
    from pairity.reweighting.algorithm import Round  # which imports from here

_SAMPLE_ITEMS = 3_000  # to see whether features tell groups apart
_ALIKE = 0.65  # groups that a linear ranker tells apart with a lower AUC are nearly alike
_FURTHER = (
    "A more flexible ranker, the group among the features, where the law allows it, another "
    "constraint, or post-processing, which needs the groups at prediction time "
    "(pairity.baselines.exposure_lp), may reach further. The report of a model (pairity.Report.of) "
    "tries the cheap ones on held-out queries."
)


def limits_of(problem: Problem, best: Round, tolerance: float) -> tuple[str, ...]:
    """Sentences about what limits the fit whose best round this is, and what may help."""
    sentences = [
        *_noise(problem, best, tolerance),
        *_labels(problem, tolerance),
        *_features(problem, best),
        *_group_as_feature(problem, best),
        *_weights(problem, best),
        *_long_lists(problem),
    ]
    return (*sentences, _FURTHER)


def _noise(problem: Problem, best: Round, tolerance: float) -> Iterator[str]:
    if best.noise_floor > tolerance:
        yield (
            f"Too few queries: noise between {problem.target.n_queries:,} queries produces a "
            f"violation of {best.noise_floor:.3f} by itself. Measure on more queries, or aim at "
            "what they can show with tolerance='auto'."
        )


def _labels(problem: Problem, tolerance: float) -> Iterator[str]:
    target = problem.target
    own = largest_gap(problem.constraint.delta(target, target.each(lambda part: part.y)))
    if own > tolerance:
        yield (
            f"The constraint contradicts the labels: an order by the labels has a violation of "
            f"{own:.3f}. A constraint that compares how often labels are respected, such as "
            "'inter', does not."
        )


def _features(problem: Problem, best: Round) -> Iterator[str]:
    first, second = groups_of_largest_gap(best.delta)
    auc = separation(problem.queries, first, second)
    if auc is not None and auc < _ALIKE:
        names = (repr(problem.queries.groups[group]) for group in (first, second))
        yield (
            f"The features hardly tell the groups {' and '.join(names)} apart: a linear ranker "
            f"trained to do so has an AUC of {auc:.2f} on other queries. Weights then move little."
        )


def _group_as_feature(problem: Problem, best: Round) -> Iterator[str]:
    """Train the plain ranker with the group among the features of a sample, where that is cheap."""
    cheap = problem.on_training and type(problem.ranker) is LinearRanker
    if not cheap or not in_memory(problem.queries) or best.violation <= best.noise_floor:
        return
    queries = problem.sample
    informed = with_group_features(queries)
    ranker = clone(problem.ranker).fit_pairs(informed, np.ones((queries.n_groups,) * 2))
    scores = ranker.predict(informed.X)
    violation = largest_gap(problem.constraint.delta(queries, scores))
    if violation < best.violation:
        yield (
            "With the group among the features, which the law may forbid, even the plain ranker "
            f"has a violation of {violation:.3f} at an AUC of {mean_auc(queries, scores):.3f} on "
            f"{queries.n_queries:,} training queries (now {best.violation:.3f} at {best.auc:.3f})."
        )


def with_group_features(queries: Queries) -> Queries:
    """The same queries with one more feature for each group, which is 1 for its items."""
    columns = (queries.group[:, None] == np.arange(queries.n_groups)).astype(np.float64)
    stack = partial(sp.hstack, format="csr") if sp.issparse(queries.X) else np.hstack
    return queries.with_features(stack([queries.validated().X, columns]))


def in_memory(queries: Any) -> bool:
    """Whether features are in memory, neither on workers nor in files."""
    return isinstance(queries, Queries) and not isinstance(queries.X, ParquetFeatures)


def groups_of_largest_gap(delta: Array) -> tuple[int, int]:
    """The codes of the two groups between which the gap is largest."""
    contrasts = Contrasts.of(delta)
    largest = int(np.argmax(np.abs(contrasts.gaps(delta))))
    first, second = int(contrasts.first[largest]), int(contrasts.second[largest])
    if len(contrasts.shape) == 1:
        return first, second
    n = contrasts.shape[0]
    row, column = divmod(first, n)
    return (row, column) if row != column else (row, second // n)


def separation(queries: Any, first: int, second: int) -> float | None:
    """How well a linear ranker tells two groups apart, as its AUC on a part of the queries.

    None where that is not known: for queries on workers, features in files, features that are not
    numbers, and queries of which no half holds both groups.
    """
    if not in_memory(queries):
        return None
    part = queries.thinned(max(1, queries.n_items // _SAMPLE_ITEMS))
    try:
        part = part.validated()
    except InputError:
        return None
    known = np.isin(part.group, (first, second))
    labelled = Queries.from_arrays(
        part.X, part.group == first, qid=part.query, sample_weight=known.astype(np.float64)
    )
    if labelled.n_queries < 2:
        return None
    halves = [labelled.take(np.arange(start, labelled.n_queries, 2)) for start in (0, 1)]
    if not all(map(has_preferences, halves)):
        return None
    ranker = LinearRanker().fit_pairs(halves[0], np.ones((halves[0].n_groups,) * 2))
    return mean_auc(halves[1], ranker.predict(halves[1].X))


def _weights(problem: Problem, best: Round) -> Iterator[str]:
    """Name the entries of λ that are at their limits."""
    groups = problem.queries.groups
    entries = np.argwhere(problem.weigher.saturated(best.lambda_))
    if not len(entries):
        return
    named = [" preferred to ".join(repr(groups[k]) for k in entry) for entry in entries[:3]]
    more = f" and {len(entries) - 3} more" if len(entries) > 3 else ""
    wider = ""
    if problem.weigher.form != "reversible" and getattr(problem.ranker, "reversible", False):
        wider = " The weights of weighting='reversible' reach further."
    yield f"Weights are at their limits for {', '.join(named)}{more}.{wider}"


def long_lists_rule(constraint: Constraint, queries: Any) -> bool:
    """Whether long lists rule the training, but every query counts the same in the constraint."""
    return getattr(constraint, "average", "") == "query" and suggests_equal_queries(queries)


def _long_lists(problem: Problem) -> Iterator[str]:
    if long_lists_rule(problem.constraint, problem.queries):
        yield (
            "Lists differ much in length and long ones rule the training, but every query counts "
            "the same in the constraint: query_weight='equal' may help."
        )
