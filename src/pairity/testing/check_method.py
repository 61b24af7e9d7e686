"""check_method: the properties that every method must have.

Each check trains the method on some queries, changes what must not matter for other queries, and
compares how these are ordered.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity.baselines.methods import Method, Rankings, Scorer, as_method
from pairity.comparisons.runs import Copies
from pairity.data.queries import Queries
from pairity.exceptions import PairityWarning
from pairity.metrics.positions import Positions
from pairity.testing._contract import RTOL, Calls, Checks, Subject, run_all, select
from pairity.testing._lists import mixed_lists


def check_method(method: Any, *, rtol: float = RTOL, skip: Collection[str] = ()) -> None:
    """Check that a method does what it declares, so that it can be compared with others.

    Parameters
    ----------
    method : Method, or any model that `pairity.baselines.methods.as_method` accepts
        It is fitted many times on 20 queries of 12 items, in three groups that the labels favour
        unequally.
    rtol : float, default=1e-4
        How far the scores of two orders that must agree may differ, as a share of their spread.
        If the order is drawn at random, expected positions are compared instead of scores.
    skip : collection of str
        Names of properties that this method need not have.

    Raises
    ------
    ContractError
        If a property fails. The message says which, by how much, and what the method should do;
        `properties` has the names.

    Notes
    -----
    The properties, in the order of `METHOD_CHECKS`:

    description
        The name is one line of text and the settings are a mapping from text. Both can be printed,
        and print the same in every session (an address in memory does not).
    scores
        Queries that were not trained on get one finite score per item, or `Rankings` whose
        probabilities sum to one; without groups, unless the method declares that it needs them.
    labels
        Scoring does not read the labels of the queries it scores.
    other queries
        Each query is scored by itself: the same alone, among others, and in another order.
    data
        Neither fitting nor scoring changes the queries.
    fits
        A scorer scores the same after the method was fitted to other queries.
    groups
        The use of groups is declared truthfully. Without `needs_group`, the order stays the same
        when the scorer receives groups, and when these are shuffled. With it, the order changes
        when groups are shuffled, on data whose groups are far from even.
    seed
        Two fits with one seed agree, whatever the state of NumPy's and Python's global generators.
    missing groups
        Items without a group can be trained on and ranked, and so can queries of one group only.
    two groups
        The method works with two groups as well as with three.
    interruption
        Ctrl-C ends a fit with KeyboardInterrupt, and not with an unfinished scorer.

    Examples
    --------
    >>> from pairity import LinearRanker
    >>> from pairity.testing import METHOD_CHECKS, check_method
    >>> check_method(LinearRanker())
    >>> METHOD_CHECKS["groups"](LinearRanker())
    """
    run_all(method_checks(method, rtol=rtol, skip=skip))


def method_checks(
    method: Any, *, rtol: float = RTOL, skip: Collection[str] = ()
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the checks of a method one by one; see `ranker_checks`.

    Parameters
    ----------
    method, rtol, skip
        As in `check_method`.

    Yields
    ------
    name : str
    check : callable without arguments that raises `ContractError`
    """
    return select(METHOD_CHECKS, skip, method, rtol=rtol)


@dataclass(frozen=True, eq=False)
class MethodSubject(Subject):
    """A method under one check."""

    method: Method

    @classmethod
    def of(cls, name: str, method: Any, *, rtol: float = RTOL) -> MethodSubject:
        """The subject of the check of a property."""
        method = as_method(method)
        return cls(name, getattr(method, "name", "The method"), rtol, method)

    def run(self, check: Callable[[Any], None]) -> None:
        """Run a check without pairity's warnings."""
        with warnings.catch_warnings(action="ignore", category=PairityWarning):
            super().run(check)

    def fit(self, train: Queries, seed: int = 3) -> Scorer:
        """Fit the method."""
        return self.method.fit(train, seed)

    def order(self, scorer: Scorer, queries: Queries) -> Array:
        """One number per item: its score, or its expected position if that is drawn."""
        return self.numbers(self.method.score(scorer, queries), queries)

    def fit_halves(self, **changed: Any) -> tuple[Queries, Queries, Scorer, Array]:
        """Two halves of the queries, a scorer fitted to the first, and the order of the second."""
        train, test = _halves(**changed)
        scorer = self.fit(train)
        return train, test, scorer, self.order(scorer, test)

    def numbers(self, result: Any, queries: Queries) -> Array:
        """The numbers of `order`, from the result of a scorer."""
        copies = Copies.of(queries, result)
        if not isinstance(result, Rankings):
            return copies.scores
        rising = [Positions.of(queries, -scores) for scores in result.scores.T]
        position = np.column_stack([places.share(places.rank) for places in rising])
        return np.asarray((position * result.probability[queries.query]).sum(axis=1))


METHOD_CHECKS = Checks(MethodSubject.of)
"""The checks by the names of the properties, in order.

Each is a function of ``(method, *, rtol=1e-4)`` that raises `ContractError`.
"""


def _halves(**changed: Any) -> tuple[Queries, Queries]:
    """Twenty queries of `mixed_lists` to train on, and the ten others."""
    data = {**mixed_lists(), **changed}
    queries = Queries.from_arrays(**{**data, "X": data["X"].copy()})
    return queries.take(np.arange(20)), queries.take(np.arange(20, 30))


@METHOD_CHECKS.property("description")
def check_description(subject: MethodSubject) -> None:
    """Name and settings can be printed, and print the same in every session."""
    method: Any = subject.method
    name, settings = method.name, method.settings
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        subject.fail(f"its name is {name!r}. Set it to one line of text.")
    if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
        subject.fail(f"its settings are {settings!r}. Use a mapping from names to values.")
    if not isinstance(method.needs_group, bool):
        subject.fail(f"needs_group is {method.needs_group!r}. Set it to True or False.")
    for key, value in settings.items():
        if " at 0x" in repr(value) and not hasattr(value, "__qualname__"):
            subject.fail(
                f"its setting {key!r} prints as {value!r}, with an address that changes between "
                "sessions. Define its __repr__, or use a text instead."
            )
    repr(method)


@METHOD_CHECKS.property("scores")
def check_scores(subject: MethodSubject) -> None:
    """One finite score per item, or rankings with their probabilities."""
    *_, order = subject.fit_halves()
    if np.ptp(order) == 0.0:
        subject.fail("all items get the same score. Learn from the training queries.")


@METHOD_CHECKS.property("labels")
def check_labels(subject: MethodSubject) -> None:
    """Scoring does not read labels."""
    _, test, scorer, order = subject.fit_halves()
    advice = "Learn from the training queries only; labels are unknown when a ranker is used."
    for y, what in ((test.y.max() - test.y, "reversed"), (np.zeros(test.n_items), "all 0")):
        relabelled = subject.order(scorer, replace(test, y=y))
        subject.same(relabelled, order, f"labels of the test queries {what}", advice)


@METHOD_CHECKS.property("other queries")
def check_other_queries(subject: MethodSubject) -> None:
    """Each query is scored by itself."""
    _, test, scorer, order = subject.fit_halves()
    advice = "Score each query by itself, whichever other queries are passed with it."
    for chosen in ([0], [4], [2, 3, 7]):
        scores = subject.order(scorer, test.take(chosen))
        want = order[np.isin(test.query, chosen)]
        subject.same(scores, want, f"{len(chosen)} of the test queries, and all", advice)
    renumbered = replace(test, query=test.n_queries - 1 - test.query)
    subject.same(subject.order(scorer, renumbered), order, "queries numbered backwards", advice)


@METHOD_CHECKS.property("data")
def check_data(subject: MethodSubject) -> None:
    """Neither fitting nor scoring changes the queries."""
    train, test = _halves()
    unchanged = _halves()
    scorer = subject.fit(train)
    if train != unchanged[0]:
        subject.fail("fitting changed the training queries. Copy before you write to them.")
    subject.order(scorer, test)
    if (train, test) != unchanged:
        subject.fail("scoring changed the queries. Copy before you write to them.")


@METHOD_CHECKS.property("fits")
def check_fits(subject: MethodSubject) -> None:
    """A scorer does not change when the method is fitted again."""
    train, test, scorer, order = subject.fit_halves()
    subject.order(subject.fit(replace(train, y=train.y.max() - train.y)), test)
    what = "a scorer before and after the method was fitted to other queries"
    advice = "Store what is learned in the scorer, not in the method, and train copies of models."
    subject.same(subject.order(scorer, test), order, what, advice)


@METHOD_CHECKS.property("groups")
def check_groups(subject: MethodSubject) -> None:
    """The use of groups is declared truthfully."""
    _, test, scorer, order = subject.fit_halves()
    rows = np.random.default_rng(7).permutation(test.n_items)
    shuffled = replace(test, group=test.group[rows])
    if subject.method.needs_group:
        if subject.difference(subject.order(scorer, shuffled), order) <= subject.rtol:
            subject.fail(
                "it declares that it needs groups, but orders the same queries alike when their "
                "groups are shuffled. Leave needs_group out, or use the groups."
            )
        return
    advice = "Set needs_group=True, or do not read the groups of the queries that are scored."
    for queries, what in ((test, "with"), (shuffled, "with shuffled")):
        grouped = subject.numbers(scorer(queries), queries)
        subject.same(grouped, order, f"queries without groups, and {what} groups", advice)


@METHOD_CHECKS.property("seed")
def check_method_seed(subject: MethodSubject) -> None:
    """The same seed gives the same order."""
    train, test = _halves()
    advice = "Draw from a generator that is seeded with the seed of fit."
    subject.reproducible(
        lambda: subject.order(subject.fit(train, 11), test), "two fits with the same seed", advice
    )


@METHOD_CHECKS.property("missing groups")
def check_method_missing_groups(subject: MethodSubject) -> None:
    """Items without a group, and queries of one group only, can be ranked."""
    group = mixed_lists()["sensitive_features"].copy()
    group[::5] = None
    group[20 * 12 : 21 * 12] = "a"  # the first two test queries
    group[21 * 12 : 22 * 12] = None
    subject.fit_halves(sensitive_features=group)


@METHOD_CHECKS.property("two groups")
def check_two_groups(subject: MethodSubject) -> None:
    """Two groups work as well as three."""
    group = mixed_lists()["sensitive_features"]
    subject.fit_halves(sensitive_features=np.where(group == "c", "b", group))


@METHOD_CHECKS.property("interruption")
def check_method_interruption(subject: MethodSubject) -> None:
    """Ctrl-C ends a fit with KeyboardInterrupt."""
    train, test, _, want = subject.fit_halves()
    with Calls(subject.method.fit) as calls:
        subject.fit(train)
    for stop in calls.stops:
        try:
            with Calls(subject.method.fit, stop):
                scorer = subject.fit(train)
        except (KeyboardInterrupt, Exception):  # noqa: S112 - an engine may raise its own error
            continue
        what = f"a fit that was interrupted at its call {stop} of {calls.n}, and one that was not"
        advice = "Do not catch KeyboardInterrupt: a sweep would take the fit for a finished one."
        subject.same(subject.order(scorer, test), want, what, advice)
