"""check_method: what every method must do, ours and anybody's.

Each check trains the method on some queries, changes what must make no difference to others, and
compares how these are ordered.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import rankdata

from pairity._utils.typing import Array
from pairity.baselines.methods import Method, Rankings, Scorer, as_method
from pairity.comparisons.runs import Copies
from pairity.data.queries import Queries
from pairity.exceptions import ContractError, PairityWarning
from pairity.testing.contracts import (
    INTERRUPTIONS,
    RTOL,
    Calls,
    each_but,
    mixed_lists,
    named_failures,
    run_all,
    titled,
    with_global_seed,
)

METHOD_CHECKS: dict[str, Callable[..., None]] = {}
"""The properties of a method, by name, in the order in which they are checked.

Each is a function of ``(method, *, rtol=1e-4)`` that raises `ContractError`.
"""


def check_method(method: Any, *, rtol: float = RTOL, skip: Collection[str] = ()) -> None:
    """Check that a method can be compared with others: that it is what it says, and no cheat.

    Parameters
    ----------
    method : Method, or whatever else `pairity.baselines.methods.as_method` takes
        It is fitted many times on 20 queries of 12 items, in three groups that the labels favour
        unequally.
    rtol : float, default=1e-4
        How far the scores of two orders that must agree may lie apart, as a share of their spread.
        Where the order is drawn at random, expected positions take the place of scores.
    skip : collection of str
        Names of properties that this method need not have.

    Raises
    ------
    ContractError
        If a property fails; it says which ones, by how much, and what the method should do. Its
        `properties` are their names.

    Notes
    -----
    The properties, in the order of `METHOD_CHECKS`:

    description
        The name is a text of one line, the settings a mapping from texts, both print, and nothing
        in them changes from one session to the next (an address in memory would).
    scores
        Queries that were not trained on get one finite score per item, or `Rankings` whose
        probabilities add up to one; without groups, unless the method says that it needs them.
    labels
        Scoring does not read the labels of the queries it scores.
    other queries
        Each query is scored by itself: alone, among others, and in another order of queries alike.
    data
        Neither fitting nor scoring changes the queries.
    fits
        A scorer goes on to score the same after the method was fitted to other queries.
    groups
        The use of groups is declared truthfully. Without `needs_group`, the order stays the same
        where the scorer is handed groups all the same, and where these are shuffled. With it,
        the order changes where groups are shuffled, on data whose groups are far from even.
    seed
        Two fits with one seed agree, whatever the state of NumPy's and Python's global generators.
    missing groups
        Items without a group can be trained on and ranked, and so can queries of one group only.
    two groups
        It works with two groups as well as with three.
    interruption
        Ctrl-C comes out of a fit, rather than a scorer that is not what the settings say.

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
    """The checks of a method one by one, to be parametrised over; see `ranker_checks`.

    Parameters
    ----------
    method, rtol, skip
        As in `check_method`.

    Yields
    ------
    name : str
    check : callable
        Without arguments; raises `ContractError`.
    """
    return each_but(skip, METHOD_CHECKS, method, rtol=rtol)


@dataclass(frozen=True, eq=False)
class _MethodSubject:
    """The method under one check."""

    name: str
    method: Method
    rtol: float

    def fit(self, train: Queries, seed: int = 3) -> Scorer:
        return self.method.fit(train, seed)

    def order(self, scorer: Scorer, queries: Queries) -> Array:
        """One number per item: its score, or its expected position where that is drawn."""
        return self.numbers(self.method.score(scorer, queries), queries)

    def numbers(self, result: Any, queries: Queries) -> Array:
        copies = Copies.of(queries, result)
        if not isinstance(result, Rankings):
            return copies.scores
        place = np.empty(result.scores.shape)
        for query in range(queries.n_queries):
            rows = np.flatnonzero(queries.query == query)
            place[rows] = rankdata(result.scores[rows], axis=0)
        return np.asarray((place * result.probability[queries.query]).sum(axis=1))

    def apart(self, got: Array, want: Array) -> float:
        """How far two orders lie apart, as a share of their spread."""
        gap, spread = float(np.abs(got - want).max()), float(np.ptp(want))
        if gap == 0.0:
            return 0.0
        return gap / spread if spread > 0 else np.inf

    def same(self, got: Array, want: Array, what: str, advice: str) -> None:
        apart = self.apart(got, want)
        if not apart <= self.rtol:
            self.fail(
                f"{what}: scores differ by up to {apart:.2g} of their spread (rtol is "
                f"{self.rtol:g}). {advice}"
            )

    def fail(self, message: str) -> None:
        called = getattr(self.method, "name", "The method")
        raise ContractError(f"{called} fails {self.name!r}: {message}", (self.name,))


def _method_property(
    name: str,
) -> Callable[[Callable[[_MethodSubject], None]], Callable[..., None]]:
    """Enter a check in the list, as a function of a method."""

    def enter(function: Callable[[_MethodSubject], None]) -> Callable[..., None]:
        def check(method: Any, *, rtol: float = RTOL) -> None:
            subject = _MethodSubject(name, as_method(method), rtol)
            with named_failures(subject.method.name, name), warnings.catch_warnings():
                warnings.simplefilter("ignore", PairityWarning)
                function(subject)

        METHOD_CHECKS[name] = titled(check, function)
        return check

    return enter


def _halves(**changed: Any) -> tuple[Queries, Queries]:
    """Twenty queries to train on and ten others, of the mixed lists."""
    data = {**mixed_lists(), **changed}
    queries = Queries.from_arrays(**{**data, "X": data["X"].copy()})
    return queries.take(np.arange(20)), queries.take(np.arange(20, 30))


def _shuffled_groups(queries: Queries) -> Queries:
    rows = np.random.default_rng(7).permutation(queries.n_items)
    return replace(queries, group=queries.group[rows])


@_method_property("description")
def check_description(subject: _MethodSubject) -> None:
    """Name and settings print, and are the same in the next session."""
    method: Any = subject.method
    name, settings = method.name, method.settings
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        subject.fail(f"its name is {name!r}. Give a text of one line.")
    if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
        subject.fail(f"its settings are {settings!r}. Give a mapping from names to values.")
    if not isinstance(method.needs_group, bool):
        subject.fail(f"needs_group is {method.needs_group!r}. Give True or False.")
    for key, value in settings.items():
        if " at 0x" in repr(value) and not hasattr(value, "__qualname__"):
            subject.fail(
                f"its setting {key!r} prints as {value!r}, an address that the next session does "
                "not know again. Give it a __repr__, or name it by a text."
            )
    repr(method)


@_method_property("scores")
def check_scores(subject: _MethodSubject) -> None:
    """One finite score per item, or rankings with their probabilities."""
    train, test = _halves()
    order = subject.order(subject.fit(train), test)
    if np.ptp(order) == 0.0:
        subject.fail("all items get the same score. Learn from the training queries.")


@_method_property("labels")
def check_labels(subject: _MethodSubject) -> None:
    """Scoring does not read labels."""
    train, test = _halves()
    scorer = subject.fit(train)
    order = subject.order(scorer, test)
    for y, what in ((test.y.max() - test.y, "reversed"), (np.zeros(test.n_items), "all 0")):
        subject.same(
            subject.order(scorer, replace(test, y=y)),
            order,
            f"labels of the test queries {what}",
            "Learn from the training queries only; labels are not known where a ranker is used.",
        )


@_method_property("other queries")
def check_other_queries(subject: _MethodSubject) -> None:
    """Each query is scored by itself."""
    train, test = _halves()
    scorer = subject.fit(train)
    order = subject.order(scorer, test)
    advice = "Score each query by itself: which others come with it is chance."
    for chosen in ([0], [4], [2, 3, 7]):
        got = subject.order(scorer, test.take(chosen))
        want = order[np.isin(test.query, chosen)]
        subject.same(got, want, f"{len(chosen)} of the test queries, and all", advice)
    last = test.n_queries - 1
    turned = replace(test, query=last - test.query)
    subject.same(subject.order(scorer, turned), order, "queries numbered backwards", advice)


@_method_property("data")
def check_data(subject: _MethodSubject) -> None:
    """Neither fitting nor scoring changes the queries."""
    train, test = _halves()
    kept = _halves()
    scorer = subject.fit(train)
    if train != kept[0]:
        subject.fail("fitting changed the training queries. Copy before you write to them.")
    subject.order(scorer, test)
    if (train, test) != kept:
        subject.fail("scoring changed the queries. Copy before you write to them.")


@_method_property("fits")
def check_fits(subject: _MethodSubject) -> None:
    """A scorer does not change when the method is fitted again."""
    train, test = _halves()
    scorer = subject.fit(train)
    order = subject.order(scorer, test)
    y = train.y.max() - train.y
    subject.order(subject.fit(replace(train, y=y)), test)
    subject.same(
        subject.order(scorer, test),
        order,
        "a scorer before and after the method was fitted to other queries",
        "Keep what is learnt in the scorer, not in the method; train a copy of what was given.",
    )


@_method_property("groups")
def check_groups(subject: _MethodSubject) -> None:
    """The use of groups is declared truthfully."""
    train, test = _halves()
    scorer = subject.fit(train)
    shuffled = _shuffled_groups(test)
    if subject.method.needs_group:
        order = subject.order(scorer, test)
        if subject.apart(subject.order(scorer, shuffled), order) <= subject.rtol:
            subject.fail(
                "it says that it needs groups, but orders the same queries alike when their groups "
                "are shuffled. Leave needs_group out, or use the groups."
            )
        return
    order = subject.order(scorer, test)
    for given, what in ((test, "with"), (shuffled, "with shuffled")):
        subject.same(
            subject.numbers(scorer(given), given),
            order,
            f"queries without groups, and {what} groups",
            "Say needs_group=True, or do not read the groups of the queries to be scored.",
        )


@_method_property("seed")
def check_method_seed(subject: _MethodSubject) -> None:
    """The same seed gives the same order."""
    train, test = _halves()
    first, second = (
        with_global_seed(seed, lambda: subject.order(subject.fit(train, 11), test))
        for seed in (1, 2)
    )
    subject.same(
        second,
        first,
        "two fits with the same seed",
        "Draw from a generator that the seed handed to fit starts.",
    )


@_method_property("missing groups")
def check_method_missing_groups(subject: _MethodSubject) -> None:
    """Items without a group, and queries of one group only."""
    group = mixed_lists()["sensitive_features"].copy()
    group[::5] = None
    of_one, of_none = slice(20 * 12, 21 * 12), slice(21 * 12, 22 * 12)
    group[of_one], group[of_none] = "a", None
    train, test = _halves(sensitive_features=group)
    subject.order(subject.fit(train), test)


@_method_property("two groups")
def check_two_groups(subject: _MethodSubject) -> None:
    """Two groups work as well as three."""
    group = mixed_lists()["sensitive_features"]
    train, test = _halves(sensitive_features=np.where(group == "c", "b", group))
    subject.order(subject.fit(train), test)


@_method_property("interruption")
def check_method_interruption(subject: _MethodSubject) -> None:
    """Ctrl-C comes out of a fit."""
    train, test = _halves()
    want = subject.order(subject.fit(train), test)
    with Calls(subject.method.fit) as calls:
        subject.fit(train)
    for share in INTERRUPTIONS:
        at = 2 + int(share * (calls.n - 2))
        scorer = _interrupted_fit(subject, train, at)
        if scorer is None:
            continue
        subject.same(
            subject.order(scorer, test),
            want,
            f"a fit that was interrupted at its call {at} of {calls.n}, and one that was not",
            "Let KeyboardInterrupt out of the fit: a sweep would take the unfinished for finished.",
        )


def _interrupted_fit(subject: _MethodSubject, train: Queries, at: int) -> Scorer | None:
    """Interrupt a fit, and return what came of it all the same."""
    try:
        with Calls(subject.method.fit, at):
            return subject.fit(train)
    except (KeyboardInterrupt, Exception):  # the latter an engine's, whose callback was interrupted
        return None
