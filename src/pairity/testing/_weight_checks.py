"""Checks of a ranker's pair weights; `check_ranker` describes the properties."""

import numpy as np

from pairity.pairs.cells import cell_means, mean_auc
from pairity.testing._contract import Checks
from pairity.testing._lists import TABLE, cell_table, lists_by_cell, mixed_lists, rows_of_cell
from pairity.testing._ranker_subject import RankerSubject

_MIN_AUC = 0.6  # on the training items; chance is 0.5, and LinearRanker reaches 0.8
_MIN_EFFECT = 0.05  # on a cell's AUC, between a low and a high weight of it

WEIGHT_CHECKS = Checks(RankerSubject.of)


@WEIGHT_CHECKS.property("learns")
def check_learns(subject: RankerSubject) -> None:
    """Items with higher labels get higher scores."""
    queries = subject.queries(mixed_lists())
    auc = mean_auc(queries, subject.scores(queries))
    if not auc >= _MIN_AUC:
        subject.fail(
            f"the AUC is {auc:.3f} on the {queries.n_queries} training queries, where "
            f"{_MIN_AUC:g} is easy to reach. Score items with higher labels higher, and pass "
            "settings that can learn from 360 items."
        )


@WEIGHT_CHECKS.property("unit weights")
def check_unit_weights(subject: RankerSubject) -> None:
    """A table of ones is plain training."""
    data = mixed_lists()
    queries = subject.queries(data)
    ones = subject.scores(queries)
    advice = "With all weights 1, train as if there were none."
    ungrouped = subject.queries(data, sensitive_features=None)
    subject.same_order(ones, subject.scores(ungrouped), "with and without groups", advice)
    if hasattr(subject.ranker, "fit"):
        fitted = subject.copy().fit(data["X"].copy(), data["y"], qid=data["qid"])
        scores = subject.predict(fitted, data["X"])
        subject.same_order(ones, scores, "fit_pairs with ones against fit", advice)
    if subject.plain is not None:
        want = np.asarray(subject.plain(queries), dtype=np.float64)
        subject.same_order(ones, want, "fit_pairs with ones against the plain training", advice)


@WEIGHT_CHECKS.property("scale")
def check_scale(subject: RankerSubject) -> None:
    """Scaling the table changes nothing."""
    queries = subject.queries(mixed_lists())
    unscaled = subject.scores(queries, TABLE)
    advice = "Divide the weights by their mean over the pairs before training."
    for factor in (3.0, 0.1):
        scaled = subject.scores(queries, factor * TABLE)
        subject.same_order(scaled, unscaled, f"a table and {factor:g} times that table", advice)


@WEIGHT_CHECKS.property("weights matter")
def check_weights_matter(subject: RankerSubject) -> None:
    """Pairs with a higher weight are respected more."""
    queries = subject.queries(lists_by_cell())
    cell = np.nonzero(cell_table(queries, 0.0, ab=1.0))
    heavy, light = (
        cell_means(queries, subject.scores(queries, table))[cell].item()
        for table in (cell_table(queries, ab=9.0), cell_table(queries, ba=9.0))
    )
    if not heavy - light >= _MIN_EFFECT:
        subject.fail(
            f"{heavy:.0%} of a cell's pairs are in the right order when the cell has weight 9, and "
            f"{light:.0%} when contrary pairs have it. Multiply the loss of a pair by "
            "table[group of the preferred item, group of the other]."
        )


@WEIGHT_CHECKS.property("integer weights")
def check_integer_weights(subject: RankerSubject) -> None:
    """An integer weight equals repeating the pair."""
    queries = subject.queries(lists_by_cell(copies=True))
    unequal = subject.scores(queries, cell_table(queries, 2.0, ab=3.0, cd=1.0))
    equal = subject.scores(queries, cell_table(queries, 2.0))
    what = "a query with weight 3 and its copy with 1, against both with 2"
    advice = "Count a pair of weight w as w pairs: multiply its loss by w, not by a power of w."
    subject.same_order(unequal, equal, what, advice)


@WEIGHT_CHECKS.property("zero weights")
def check_zero_weights(subject: RankerSubject) -> None:
    """A weight of zero equals dropping the pair."""
    data = lists_by_cell()
    queries = subject.queries(data)
    dropped = rows_of_cell(data, 1)
    want = subject.scores(queries, cell_table(queries, ba=0.0))[~dropped]
    advice = "Leave pairs of weight 0 out of every sum, every mean and every count."
    for changed, what in (
        ({"query_weight": np.where(dropped, 0.0, 1.0)}, "weight 0 of a cell and of its queries"),
        ({"y": np.where(dropped, 0.0, data["y"])}, "pairs of weight 0 and no such pairs"),
    ):
        scores = subject.scores(subject.queries(data, **changed))[~dropped]
        subject.same_order(scores, want, what, advice)


@WEIGHT_CHECKS.property("weights multiply")
def check_weights_multiply(subject: RankerSubject) -> None:
    """Table, query weight and item weights multiply."""
    data = lists_by_cell()
    rows = rows_of_cell(data, 0)
    queries = subject.queries(data)
    double = cell_table(queries, ab=2.0)
    want = subject.scores(queries, double)
    n_items = len(data["y"])
    halves, threes = np.full(n_items, 0.5), np.full(n_items, 3.0)
    preferred = np.where(rows & (data["y"] > 0), 2.0, 1.0)
    for weights, table, what in (
        ({"query_weight": np.where(rows, 2.0, 1.0)}, None, "weight 2 of a cell and of its queries"),
        ({"sample_weight": preferred}, None, "weight 2 of a cell and of its items"),
        ({"sample_weight": halves, "query_weight": threes}, double, "with equal weights for all"),
    ):
        scores = subject.scores(subject.queries(data, **weights), table)
        advice = "The weight of a pair is table entry × query weight × both items' weights."
        subject.same_order(want, scores, what, advice)


@WEIGHT_CHECKS.property("missing groups")
def check_missing_groups(subject: RankerSubject) -> None:
    """Pairs with an item of unknown group have weight 1."""
    data = mixed_lists()
    unknown = np.arange(len(data["y"])) % 5 == 0
    group = data["sensitive_features"]
    without = subject.queries(data, sensitive_features=np.where(unknown, None, group))
    named = subject.queries(data, sensitive_features=np.where(unknown, "z", group))
    want = subject.scores(named, np.pad(TABLE, (0, 1), constant_values=1.0))
    what = "items without a group, and in a group whose pairs have weight 1"
    advice = "Pairs with an item of unknown group (code n_groups) have weight 1: see `Queries.pad`."
    subject.same_order(subject.scores(without, TABLE), want, what, advice)


@WEIGHT_CHECKS.property("row order")
def check_row_order(subject: RankerSubject) -> None:
    """The order of the caller's rows does not matter."""
    data = mixed_lists()
    rows = np.random.default_rng(5).permutation(len(data["y"]))
    shuffled = subject.queries({key: values[rows] for key, values in data.items()})
    scores, want = subject.scores(shuffled, TABLE), subject.scores(subject.queries(data), TABLE)
    advice = "Rows of a query need not be contiguous: see `Queries.query` and `Queries.by_query`."
    subject.same_order(scores, want[rows], "shuffled rows", advice)
