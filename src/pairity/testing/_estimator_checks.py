"""Checks of a ranker as an estimator; `check_ranker` describes the properties."""

import pickle
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from pairity._utils.typing import Array
from pairity.data.queries import Queries
from pairity.exceptions import InputError, PairityWarning
from pairity.reweighting.fair_ranker import FairRanker
from pairity.testing._contract import Calls, Checks
from pairity.testing._lists import TABLE, cell_table, lists_by_cell, mixed_lists
from pairity.testing._ranker_subject import RankerSubject

_RESPONSE_RTOL = 0.25  # a response only steers the search for multipliers

ESTIMATOR_CHECKS = Checks(RankerSubject.of)


@ESTIMATOR_CHECKS.property("clone")
def check_clone(subject: RankerSubject) -> None:
    """A clone has the same parameters, is not fitted, and fits to the same scores."""
    if not hasattr(subject.ranker, "get_params"):
        subject.fail(
            "it has no get_params. Inherit from sklearn.base.BaseEstimator, and let __init__ only "
            "store its arguments."
        )
    queries = subject.queries(mixed_lists())
    fitted = subject.fit(queries, TABLE)
    copy = clone(fitted)
    if type(copy) is not type(fitted) or not _equal(_snapshot(copy), _snapshot(fitted)):
        subject.fail(
            f"its clone is {copy!r}. Let __init__ store its arguments unchanged, under their own "
            "names."
        )
    try:
        copy.predict(queries.X)
    except Exception:  # noqa: S110 - any error may say that it is not fitted
        pass
    else:
        subject.fail(
            "the clone of a fitted ranker predicts before it is fitted. Store what is learned in "
            "attributes that fit_pairs sets, not in parameters or in the class."
        )
    copy.fit_pairs(queries, TABLE.copy())
    scores, want = (subject.predict(model, queries.X) for model in (copy, fitted))
    advice = "Let a fit depend on parameters, queries and table only."
    subject.same(scores, want, "a clone of a fitted ranker, fitted again", advice)


@ESTIMATOR_CHECKS.property("parameters")
def check_parameters(subject: RankerSubject) -> None:
    """Fitting changes neither the parameters nor the data."""
    ranker = subject.copy()
    queries, table = subject.queries(mixed_lists()), TABLE.copy()
    before, fitted, features = _snapshot(ranker), _fitted_parameters(ranker), queries.X.copy()
    if ranker.fit_pairs(queries, table) is not ranker:
        subject.fail("fit_pairs does not return the ranker itself. End it with `return self`.")
    ranker.predict(queries.X)
    after, now_fitted = _snapshot(ranker), _fitted_parameters(ranker)
    if not _equal(after, before) or now_fitted != fitted:
        changed = [name for name in after[1] if not _equal(after[1][name], before[1].get(name))]
        subject.fail(
            f"fitting changed its parameters: {', '.join(changed or [*now_fitted, 'now fitted'])}. "
            "Train a copy of the parameters, and set only attributes whose names end in an "
            "underscore."
        )
    if not np.array_equal(queries.X, features) or not np.array_equal(table, TABLE):
        subject.fail("fitting changed the features or the table. Copy before you write to them.")


def _snapshot(value: Any) -> Any:
    """Copy a parameter for a later comparison, with nested parameters and weights of modules."""
    if isinstance(value, type) or callable(getattr(value, "randint", None)):
        return value  # a random number generator changes when it is used
    if hasattr(value, "get_params"):
        return type(value), _snapshot(value.get_params(deep=False))
    if callable(getattr(value, "state_dict", None)):
        return type(value), _snapshot(dict(value.state_dict()))
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _snapshot(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_snapshot(entry) for entry in value]
    return value


def _fitted_parameters(ranker: Any) -> list[str]:
    """The names of the parameters that are fitted estimators."""
    names = []
    for name, value in ranker.get_params().items() if hasattr(ranker, "get_params") else ():
        if hasattr(value, "get_params") and not isinstance(value, type):
            with suppress(NotFittedError, TypeError):
                check_is_fitted(value)
                names.append(name)
    return names


def _equal(a: Any, b: Any) -> bool:
    """Whether two snapshots are equal; NaN equals NaN."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[name], b[name]) for name in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return a is b or bool(a == b) or (a != a and b != b)


@ESTIMATOR_CHECKS.property("previous")
def check_previous(subject: RankerSubject) -> None:
    """The previous fit is a starting point, and is not changed."""
    queries = subject.queries(mixed_lists())
    first = subject.fit(queries)
    before = subject.predict(first, queries.X)
    second = subject.fit(queries, TABLE, previous=first)
    if not np.array_equal(subject.predict(first, queries.X), before):
        subject.fail(
            "the previous model scores differently after the next fit. Copy what you start from."
        )
    scores = subject.predict(second, queries.X)
    want = subject.scores(subject.queries(mixed_lists()), TABLE)
    advice = "Start from the previous fit only if the result does not depend on the start."
    subject.same_order(scores, want, "with and without a previous fit", advice)


@ESTIMATOR_CHECKS.property("predict")
def check_predict(subject: RankerSubject) -> None:
    """Scores are finite numbers, each depends on its own row only, and no group is needed."""
    queries = subject.queries(mixed_lists())
    model = subject.fit(queries, TABLE)
    X = queries.X
    scores = model.predict(X)
    if not isinstance(scores, np.ndarray) or scores.dtype != np.float64:
        kind = getattr(scores, "dtype", type(scores).__name__)
        subject.fail(f"predict returned {kind}. Return a float64 array.")
    scores = subject.predict(model, X)
    new = np.concatenate([0.5 * X[:7], X[100:130:3]])
    mixed = subject.predict(model, new)
    single = np.concatenate([subject.predict(model, row[None]) for row in new])
    for got, want, what in (
        (subject.predict(model, X[::-1])[::-1], scores, "the same rows reversed"),
        (single, mixed, "new rows one at a time and all at once"),
        (mixed[7:], scores[100:130:3], "rows among other rows"),
    ):
        subject.same(got, want, what, "Score each row by itself, from its features alone.")


@ESTIMATOR_CHECKS.property("seed")
def check_seed(subject: RankerSubject) -> None:
    """The same seed gives the same model."""

    def scores() -> Array:
        return subject.scores(subject.queries(mixed_lists()), TABLE)

    advice = "Draw from a random_state among the parameters, and pass a ranker with a seed."
    subject.reproducible(scores, "the same fit twice", advice)


@ESTIMATOR_CHECKS.property("interruption")
def check_interruption(subject: RankerSubject) -> None:
    """A fit that Ctrl-C ends leaves nothing broken."""
    data = mixed_lists()
    queries = subject.queries(data)
    first = subject.fit(queries)
    before = subject.predict(first, data["X"])
    want = subject.scores(queries, TABLE)
    n_raised = 0
    # Without a previous fit the queries are new, so that their preparation is interrupted too.
    for previous in (None, first):
        with Calls(subject.ranker) as calls:
            train = subject.queries(data) if previous is None else queries
            subject.fit(train, TABLE, previous=previous)
        for stop in calls.stops:
            train = subject.queries(data) if previous is None else queries
            ranker = subject.copy()
            n_raised += _interrupt(ranker, train, previous, stop)
            where = f"after one that was interrupted at its call {stop} of {calls.n}"
            if not np.array_equal(subject.predict(first, data["X"]), before):
                subject.fail(
                    f"the first model scores differently {where}. Copy what you start from, and "
                    "restore in a `finally` what a fit changes outside of itself."
                )
            ranker.fit_pairs(train, TABLE.copy(), previous=previous)
            scores = subject.predict(ranker, data["X"])
            advice = "Restore in a `finally` what a fit changes, and set what is learned last."
            subject.same_order(scores, want, f"a fit {where}", advice)
    if not n_raised:
        subject.fail("no fit raised KeyboardInterrupt when it was interrupted. Do not catch it.")


def _interrupt(ranker: Any, queries: Queries, previous: Any, stop: int) -> bool:
    """Interrupt a fit, and return whether it raised KeyboardInterrupt."""
    try:
        # An engine whose callback from C was interrupted may raise its own error.
        with Calls(ranker, stop), suppress(Exception):
            ranker.fit_pairs(queries, TABLE.copy(), previous=previous)
    except KeyboardInterrupt:
        return True
    return False


@ESTIMATOR_CHECKS.property("following")
def check_following(subject: RankerSubject) -> None:
    """fit_following with a constant table is fit_pairs with that table."""
    if not hasattr(subject.ranker, "fit_following"):
        return
    queries = subject.queries(mixed_lists())
    ranker = subject.copy()
    try:
        ranker.fit_following(queries, lambda *_: TABLE.copy())
    except InputError:  # these settings do not allow it, which equals not offering it
        return
    scores, want = subject.predict(ranker, queries.X), subject.scores(queries, TABLE)
    what = "fit_following with one table, and fit_pairs with it"
    subject.same_order(scores, want, what, "Let both train in the same way.")


@ESTIMATOR_CHECKS.property("response")
def check_response(subject: RankerSubject) -> None:
    """The response predicts how the scores follow the table."""
    if not hasattr(subject.ranker, "response"):
        return
    queries = subject.queries(lists_by_cell())
    table, step = cell_table(queries, ab=1.5), 0.1
    change = cell_table(queries, 0.0, ab=1.0, ba=-0.5)
    directions, coefficients = subject.fit(queries, table).response(queries, table)
    response = np.tensordot(change, coefficients[0], axes=2) @ directions
    up, down = (subject.scores(queries, table + sign * step * change) for sign in (1.0, -1.0))
    tolerant = replace(subject, rtol=max(subject.rtol, _RESPONSE_RTOL))
    what = "the response, and the difference between fits with more and with less weight"
    advice = "Return the derivatives of the scores in the entries of the table, or no response."
    tolerant.same_order(response, (up - down) / (2 * step), what, advice)


@ESTIMATOR_CHECKS.property("FairRanker")
def check_fair_ranker(subject: RankerSubject) -> None:
    """The ranker works inside FairRanker, and can be pickled there."""
    data = mixed_lists()
    model = FairRanker(subject.ranker, max_rounds=2, tolerance=0.0, progress=False)
    with warnings.catch_warnings(action="ignore", category=PairityWarning):
        model.fit(**data)
    scores = subject.predict(model, data["X"])
    unpickled = pickle.loads(pickle.dumps(model))  # noqa: S301 - written in the same line
    advice = "Store all that predict needs in attributes that can be pickled."
    subject.same(subject.predict(unpickled, data["X"]), scores, "before and after pickling", advice)
