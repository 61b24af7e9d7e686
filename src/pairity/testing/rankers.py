"""check_ranker: what every ranker must do, ours and anybody's.

Each check trains copies of the ranker on small data made here, with weights that must give the same
model, and compares the scores of the training items. Nothing else is known of the ranker than
`pairity.rankers.base.Ranker`.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from pairity.data.queries import Queries
from pairity.exceptions import InputError, PairityWarning
from pairity.pairs.cells import cell_means, mean_auc
from pairity.rankers.adapters import as_ranker
from pairity.reweighting.fair_ranker import FairRanker
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
from pairity.testing.parameters import differing, equal, fitted_ones, frozen
from pairity.testing.ranker_subjects import (
    TABLE,
    Plain,
    RankerSubject,
    cell_table,
    in_cells,
    rows_of_cell,
)

_LEAST_AUC = 0.6  # a ranker that learns anything is well above, on its training items
_LEAST_PULL = 0.05  # of a cell's AUC, between weighing it little and much
_RESPONSE_ERROR = 0.25  # a response only steers the search

RANKER_CHECKS: dict[str, Callable[..., None]] = {}
"""The properties, by name, in the order in which they are checked.

Each is a function of ``(ranker, *, rtol=1e-4, plain=None)`` that raises `ContractError`.
"""


def check_ranker(
    ranker: Any, *, rtol: float = RTOL, plain: Plain | None = None, skip: Collection[str] = ()
) -> None:
    """Check that a ranker treats weighted pairs as pairity expects.

    Parameters
    ----------
    ranker : Ranker, or whatever else `pairity.rankers.adapters.as_ranker` takes
        It is cloned before every fit. Where it draws at random, give it a seed.
    rtol : float, default=1e-4
        How far the scores of two fits that must agree may lie apart, as a share of their spread
        (largest less smallest). Engines that sum in float32 come within about 1e-5, and fits to
        convergence within their own tolerance; a fit that stops early needs more.
    plain : callable, optional
        Given queries, the scores of their items by the engine's own training, without weights. The
        ranker must agree with it where all pairs weigh 1.
    skip : collection of str
        Names of properties that this ranker need not have.

    Raises
    ------
    ContractError
        If a property fails; it says which ones, by how much, and what the ranker should do. Its
        `properties` are their names.

    Notes
    -----
    The properties, in the order of `RANKER_CHECKS`:

    learns
        Items with higher labels get higher scores: an AUC of 0.6 or more on the training items.
    unit weights
        A table of ones is plain training: `fit_pairs` agrees with `fit`, where there is one, with
        queries without groups, and with `plain`.
    scale
        A table, 3 times that table and 0.1 times that table give the same scores.
    weights matter
        Pairs of a cell are respected more if it weighs 9 than if a cell of contrary pairs does.
    whole weights
        Weights are repeats. Some queries are listed twice, the copy in groups of its own; weights
        of 3 and 1 for the two agree with 2 and 2. As nothing else differs, neither the rows nor
        the total weight, this is exact whatever the engine's penalties and limits. Draws by row or
        by batch (bootstraps, sampled pairs, batches of queries) do not have this property.
    zero weights
        A cell that weighs 0 agrees with queries that weigh 0, and with queries whose items all have
        the same label, so that the pairs are not there. The rows are, in all three, as an engine
        may cut features into bins by all rows. The scores of the other queries are compared.
    weights multiply
        A pair weighs its table entry times its query's weight times its items' weights: doubling a
        cell by any of the three gives the same scores, and equal weights for all change nothing.
    missing groups
        Pairs with an item of unknown group weigh 1, as if it were a group with ones in the table.
    row order
        Shuffled rows, the queries mixed, give every item the same score. Draws by row do not have
        this property.
    clone
        `sklearn.base.clone` of a fitted ranker has the same parameters, is not fitted, and fits to
        the same scores.
    parameters
        Fitting leaves the parameters as they were, those of nested estimators and the weights of
        torch modules as well, and changes neither the features nor the table.
    previous
        A fit that is handed a previous one agrees with a fit that is not, and leaves the previous
        one's scores as they were.
    predict
        Scores are finite float64 of shape (n_items,); each follows from its own row, old or new;
        no group is needed.
    seed
        Two fits of clones agree, whatever the state of NumPy's and Python's global generators.
    interruption
        A fit that Ctrl-C ended anywhere leaves nothing broken: the same ranker fits the same
        queries again, to the scores of a fit that went through, and a previous model scores as
        before. The interruption must come out of the fit (an engine's own error may, in its place,
        but not everywhere).
    following
        Where there is `fit_following`, and it is not refused by an `InputError`, a table that stays
        the same agrees with `fit_pairs`.
    response
        Where there is `response`, it foretells how the scores follow the table, to a quarter.
    FairRanker
        `FairRanker` around it fits, predicts, and predicts the same once pickled and read again.

    Scores are compared up to a common constant where weights are, since no pair sees one. No check
    compares a weight with more or fewer rows: these would move an engine's bins, its limits on the
    size of a leaf and the strength of its penalties, whatever the ranker does with the weights.

    A ranker that scales features by the weighted rows has "zero weights" and "weights multiply"
    only as far as the scale makes no difference: rows have the weights of items and queries, but
    no table entry. `LinearRanker` does so for its penalty, and passes unless that is strong.

    Examples
    --------
    >>> from pairity import LinearRanker
    >>> from pairity.testing import RANKER_CHECKS, check_ranker
    >>> check_ranker(LinearRanker())
    >>> RANKER_CHECKS["scale"](LinearRanker(), rtol=1e-3)
    """
    run_all(ranker_checks(ranker, rtol=rtol, plain=plain, skip=skip))


def ranker_checks(
    ranker: Any, *, rtol: float = RTOL, plain: Plain | None = None, skip: Collection[str] = ()
) -> Iterator[tuple[str, Callable[[], None]]]:
    """The checks of a ranker one by one, to be parametrised over.

    Parameters
    ----------
    ranker, rtol, plain, skip
        As in `check_ranker`.

    Yields
    ------
    name : str
    check : callable
        Without arguments; raises `ContractError`.

    Examples
    --------
    With pytest::

        CHECKS = dict(ranker_checks(MyRanker(random_state=0)))

        @pytest.mark.parametrize("name", CHECKS)
        def test_contract(name):
            CHECKS[name]()
    """
    return each_but(skip, RANKER_CHECKS, ranker, rtol=rtol, plain=plain)


def _property(name: str) -> Callable[[Callable[[RankerSubject], None]], Callable[..., None]]:
    """Enter a check in the list, as a function of a ranker."""

    def enter(function: Callable[[RankerSubject], None]) -> Callable[..., None]:
        def check(ranker: Any, *, rtol: float = RTOL, plain: Plain | None = None) -> None:
            subject = RankerSubject(name, as_ranker(ranker), rtol, plain)
            with named_failures(type(subject.ranker).__name__, name):
                function(subject)

        RANKER_CHECKS[name] = titled(check, function)
        return check

    return enter


# --- weights ------------------------------------------------------------------------------------


@_property("learns")
def check_learns(subject: RankerSubject) -> None:
    """Items with higher labels get higher scores."""
    queries = subject.queries(mixed_lists())
    auc = mean_auc(queries, subject.scores(queries))
    if not auc >= _LEAST_AUC:
        subject.fail(
            f"the AUC is {auc:.3f} on the {queries.n_queries} queries it was trained on, where "
            f"{_LEAST_AUC:g} is easy. Score items with higher labels higher, and give the ranker "
            "settings that can learn from 360 items."
        )


@_property("unit weights")
def check_unit_weights(subject: RankerSubject) -> None:
    """A table of ones is plain training."""
    data = mixed_lists()
    queries = subject.queries(data)
    ones = subject.scores(queries)
    advice = "With all weights 1, train as if there were none."
    ungrouped = subject.queries(data, sensitive_features=None)
    subject.same(ones, subject.scores(ungrouped), "with and without groups", advice)
    if hasattr(subject.ranker, "fit"):
        fitted = clone(subject.ranker, safe=False).fit(data["X"].copy(), data["y"], qid=data["qid"])
        got = subject.predict(fitted, data["X"])
        subject.same(ones, got, "fit_pairs with ones against fit", advice)
    if subject.plain is not None:
        want = np.asarray(subject.plain(queries), dtype=np.float64)
        subject.same(ones, want, "fit_pairs with ones against the plain training", advice)


@_property("scale")
def check_scale(subject: RankerSubject) -> None:
    """Scaling the table changes nothing."""
    queries = subject.queries(mixed_lists())
    once = subject.scores(queries, TABLE)
    for factor in (3.0, 0.1):
        subject.same(
            subject.scores(queries, factor * TABLE),
            once,
            f"a table and {factor:g} times that table",
            "Divide the weights by their mean over the pairs before training.",
        )


@_property("weights matter")
def check_weights_matter(subject: RankerSubject) -> None:
    """What weighs more is respected more."""
    queries = subject.queries(in_cells())
    cell = np.nonzero(cell_table(queries, 0.0, ab=1.0))
    heavy, light = (
        cell_means(queries, subject.scores(queries, table))[cell].item()
        for table in (cell_table(queries, ab=9.0), cell_table(queries, ba=9.0))
    )
    if not heavy - light >= _LEAST_PULL:
        subject.fail(
            f"of the pairs in a cell, {heavy:.0%} are in the right order where the cell weighs 9, "
            f"and {light:.0%} where contrary pairs do. Multiply the loss of a pair by "
            "table[group of the preferred item, group of the other]."
        )


@_property("whole weights")
def check_whole_weights(subject: RankerSubject) -> None:
    """A whole weight equals repeating the pair."""
    queries = subject.queries(in_cells(copies=True))
    subject.same(
        subject.scores(queries, cell_table(queries, 2.0, ab=3.0, cd=1.0)),
        subject.scores(queries, cell_table(queries, 2.0)),
        "a query with weight 3 and its copy with 1, against both with 2",
        "Let a pair of weight w count as w pairs: multiply its loss by w, not by a power of it.",
    )


@_property("zero weights")
def check_zero_weights(subject: RankerSubject) -> None:
    """A weight of zero equals dropping the pair."""
    data = in_cells()
    queries = subject.queries(data)
    dropped = rows_of_cell(data, 1)
    kept = ~dropped
    zero = subject.scores(queries, cell_table(queries, ba=0.0))[kept]
    advice = "Leave pairs that weigh 0 out of every sum, every mean and every count."
    for changed, what in (
        ({"query_weight": np.where(dropped, 0.0, 1.0)}, "a cell that weighs 0 and its queries"),
        ({"y": np.where(dropped, 0.0, data["y"])}, "pairs that weigh 0 and pairs not there"),
    ):
        got = subject.scores(subject.queries(data, **changed))[kept]
        subject.same(got, zero, what, advice)


@_property("weights multiply")
def check_weights_multiply(subject: RankerSubject) -> None:
    """Table, query weight and item weights multiply."""
    data = in_cells()
    rows = rows_of_cell(data, 0)
    plain = subject.queries(data)
    double = cell_table(plain, ab=2.0)
    by_table = subject.scores(plain, double)
    advice = "Weigh a pair by table entry × query weight × both items' weights."
    doubled = np.where(rows, 2.0, 1.0)
    by_query = subject.queries(data, query_weight=doubled)
    subject.same(by_table, subject.scores(by_query), "a cell and its queries, weighing 2", advice)
    preferred = np.where(rows & (data["y"] > 0), 2.0, 1.0)
    by_item = subject.queries(data, sample_weight=preferred)
    subject.same(by_table, subject.scores(by_item), "a cell and its items, weighing 2", advice)
    n_items = len(data["y"])
    alike = subject.queries(
        data, sample_weight=np.full(n_items, 0.5), query_weight=np.full(n_items, 3.0)
    )
    subject.same(
        by_table, subject.scores(alike, double), "without and with equal weights for all", advice
    )


@_property("missing groups")
def check_missing_groups(subject: RankerSubject) -> None:
    """Pairs with an item of unknown group weigh 1."""
    data = mixed_lists()
    unknown = np.arange(len(data["y"])) % 5 == 0
    group = data["sensitive_features"]
    missing = subject.queries(data, sensitive_features=np.where(unknown, None, group))
    named = subject.queries(data, sensitive_features=np.where(unknown, "z", group))
    subject.same(
        subject.scores(missing, TABLE),
        subject.scores(named, np.pad(TABLE, (0, 1), constant_values=1.0)),
        "items without a group, and in a group whose pairs weigh 1",
        "Weigh pairs with an item of unknown group (code n_groups) by 1; `Queries.pad` does it.",
    )


@_property("row order")
def check_row_order(subject: RankerSubject) -> None:
    """The order of the caller's rows does not matter."""
    data = mixed_lists()
    rows = np.random.default_rng(5).permutation(len(data["y"]))
    shuffled = {key: values[rows] for key, values in data.items()}
    subject.same(
        subject.scores(subject.queries(shuffled), TABLE),
        subject.scores(subject.queries(data), TABLE)[rows],
        "shuffled rows",
        "Read which rows share a query from `Queries.query`: they need not stand together "
        "(`Queries.by_query` puts them so).",
    )


# --- manners of an estimator --------------------------------------------------------------------


@_property("clone")
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
    if type(copy) is not type(fitted) or not equal(frozen(copy), frozen(fitted)):
        subject.fail(
            f"its clone is {copy!r}. Let __init__ store its arguments as they are, under their "
            "own names."
        )
    try:
        copy.predict(queries.X)
    except Exception:  # noqa: S110 - whatever says that it is not fitted
        pass
    else:
        subject.fail(
            "the clone of a fitted ranker predicts before it is fitted. Keep what is learnt in "
            "attributes that fit_pairs sets, not in parameters or in the class."
        )
    copy.fit_pairs(queries, TABLE.copy())
    subject.same(
        subject.predict(copy, queries.X),
        subject.predict(fitted, queries.X),
        "a clone of a fitted ranker, fitted again",
        "Let a fit depend on parameters, queries and table only.",
        shifted=False,
    )


@_property("parameters")
def check_parameters(subject: RankerSubject) -> None:
    """Fitting changes neither the parameters nor the data."""
    ranker = clone(subject.ranker, safe=False)
    queries, table = subject.queries(mixed_lists()), TABLE.copy()
    before, fitted, features = frozen(ranker), fitted_ones(ranker), queries.X.copy()
    if ranker.fit_pairs(queries, table) is not ranker:
        subject.fail("fit_pairs does not return the ranker itself. End it with `return self`.")
    ranker.predict(queries.X)
    after = frozen(ranker)
    if not equal(after, before) or fitted_ones(ranker) != fitted:
        changed = differing(after, before) or f"{', '.join(fitted_ones(ranker))}, now fitted"
        subject.fail(
            f"fitting changed its parameters: {changed}. Train a copy of what was given, and set "
            "only attributes whose names end in an underscore."
        )
    if not np.array_equal(queries.X, features) or not np.array_equal(table, TABLE):
        subject.fail("fitting changed the features or the table. Copy before you write to them.")


@_property("previous")
def check_previous(subject: RankerSubject) -> None:
    """The previous fit is a place to start from, and is not changed."""
    queries = subject.queries(mixed_lists())
    first = subject.fit(queries)
    before = subject.predict(first, queries.X)
    second = subject.fit(queries, TABLE, previous=first)
    if not np.array_equal(subject.predict(first, queries.X), before):
        subject.fail(
            "the previous model scores differently after the next fit. Copy what you go on from."
        )
    subject.same(
        subject.predict(second, queries.X),
        subject.scores(subject.queries(mixed_lists()), TABLE),
        "with and without a previous fit",
        "Start from the previous fit only where the result does not depend on the start.",
    )


@_property("predict")
def check_predict(subject: RankerSubject) -> None:
    """Scores are finite numbers, each of its own row, without a group."""
    queries = subject.queries(mixed_lists())
    model = subject.fit(queries, TABLE)
    X = queries.X
    scores = model.predict(X)
    if not isinstance(scores, np.ndarray) or scores.dtype != np.float64:
        kind = getattr(scores, "dtype", type(scores).__name__)
        subject.fail(f"predict returned {kind}. Return a float64 array.")
    scores = subject.predict(model, X)
    advice = "Score each row by itself, from its features alone."
    turned = subject.predict(model, X[::-1])[::-1]
    subject.same(turned, scores, "the same rows turned", advice, shifted=False)
    new = np.concatenate([0.5 * X[:7], X[100:130:3]])
    mixed = subject.predict(model, new)
    alone = np.concatenate([subject.predict(model, row[None]) for row in new])
    subject.same(alone, mixed, "new rows alone and together", advice, shifted=False)
    subject.same(mixed[7:], scores[100:130:3], "rows among others", advice, shifted=False)


@_property("seed")
def check_seed(subject: RankerSubject) -> None:
    """The same seed gives the same model."""
    first, second = (
        with_global_seed(seed, lambda: subject.scores(subject.queries(mixed_lists()), TABLE))
        for seed in (1, 2)
    )
    subject.same(
        second,
        first,
        "the same fit twice",
        "Draw from a random_state among the parameters, and give the ranker a seed to be checked.",
        shifted=False,
    )


@_property("interruption")
def check_interruption(subject: RankerSubject) -> None:
    """A fit that Ctrl-C ended leaves nothing broken."""
    data = mixed_lists()
    queries = subject.queries(data)
    first = subject.fit(queries)
    before = subject.predict(first, data["X"])
    want = subject.scores(queries, TABLE)
    came_out = 0
    for previous in (None, first):  # new queries, whose preparation is interrupted too, and later
        with Calls(subject.ranker) as calls:
            given = subject.queries(data) if previous is None else queries
            subject.fit(given, TABLE, previous=previous)
        for share in INTERRUPTIONS:
            given = subject.queries(data) if previous is None else queries
            ranker = clone(subject.ranker, safe=False)
            at = 2 + int(share * (calls.n - 2))  # the first is the fit itself
            came_out += _interrupted(ranker, given, previous, at)
            where = f"after one that was interrupted at its call {at} of {calls.n}"
            if not np.array_equal(subject.predict(first, data["X"]), before):
                subject.fail(
                    f"the first model scores differently {where}. Copy what you go on from, and "
                    "put back in a `finally` what a fit changes outside of itself."
                )
            ranker.fit_pairs(given, TABLE.copy(), previous=previous)
            subject.same(
                subject.predict(ranker, data["X"]),
                want,
                f"a fit {where}",
                "Put back in a `finally` what a fit changes outside of itself, and set what is "
                "learnt at its end.",
            )
    if not came_out:
        subject.fail("no KeyboardInterrupt came out of the fit. Do not catch it.")


def _interrupted(ranker: Any, queries: Queries, previous: Any, at: int) -> bool:
    """Interrupt a fit, and tell whether the interruption came out."""
    try:
        with Calls(ranker, at):
            ranker.fit_pairs(queries, TABLE.copy(), previous=previous)
    except KeyboardInterrupt:
        return True
    except Exception:  # an engine's, whose callback from C was interrupted
        return False
    return False


# --- what else a ranker may offer ---------------------------------------------------------------


@_property("following")
def check_following(subject: RankerSubject) -> None:
    """A table that is followed and stays the same is that table."""
    if not hasattr(subject.ranker, "fit_following"):
        return
    queries = subject.queries(mixed_lists())
    ranker = clone(subject.ranker, safe=False)
    try:
        ranker.fit_following(queries, lambda *_: TABLE.copy())
    except InputError:  # these settings do not allow it, which is as good as not offering it
        return
    subject.same(
        subject.predict(ranker, queries.X),
        subject.scores(queries, TABLE),
        "fit_following with one table, and fit_pairs with it",
        "Train in both ways alike.",
    )


@_property("response")
def check_response(subject: RankerSubject) -> None:
    """The response foretells how the scores follow the table."""
    if not hasattr(subject.ranker, "response"):
        return
    queries = subject.queries(in_cells())
    table, step = cell_table(queries, ab=1.5), 0.1
    change = cell_table(queries, 0.0, ab=1.0, ba=-0.5)
    model = subject.fit(queries, table)
    told = np.asarray(model.response(queries, table, change[None]))[0]
    up, down = (subject.scores(queries, table + sign * step * change) for sign in (1.0, -1.0))
    moved = (up - down) / (2 * step)
    loose = replace(subject, rtol=max(subject.rtol, _RESPONSE_ERROR))
    loose.same(
        told,
        moved,
        "the response, and scores of fits to either side",
        "Return the derivative of the scores along each change of the table, or no response.",
    )


@_property("FairRanker")
def check_fair_ranker(subject: RankerSubject) -> None:
    """It works inside FairRanker, and can be pickled there."""
    data = mixed_lists()
    model = FairRanker(subject.ranker, max_rounds=2, tolerance=0.0, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PairityWarning)
        model.fit(**data)
    scores = subject.predict(model, data["X"])
    read = pickle.loads(pickle.dumps(model))  # noqa: S301 - what was just written
    subject.same(
        subject.predict(read, data["X"]),
        scores,
        "pickled and read again",
        "Keep all that predict needs in attributes that can be pickled.",
        shifted=False,
    )
