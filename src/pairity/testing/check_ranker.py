"""check_ranker: the properties that every ranker must have.

Each check trains copies of the ranker on small data with weights that must give the same model,
and compares the scores of the training items. The checks use only what
`pairity.rankers.base.Ranker` describes.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from pairity.testing._contract import RTOL, run_all, select
from pairity.testing._estimator_checks import ESTIMATOR_CHECKS
from pairity.testing._ranker_subject import Plain
from pairity.testing._weight_checks import WEIGHT_CHECKS

RANKER_CHECKS: dict[str, Callable[..., None]] = {**WEIGHT_CHECKS, **ESTIMATOR_CHECKS}
"""The checks by the names of the properties, in order.

Each is a function of ``(ranker, *, rtol=1e-4, plain=None)`` that raises `ContractError`.
"""


def check_ranker(
    ranker: Any, *, rtol: float = RTOL, plain: Plain | None = None, skip: Collection[str] = ()
) -> None:
    """Check that a ranker treats weighted pairs as pairity expects.

    Parameters
    ----------
    ranker : Ranker, or any model that `pairity.rankers.adapters.as_ranker` accepts
        It is cloned before every fit. If it draws at random, it must have a seed.
    rtol : float, default=1e-4
        How far the scores of two fits that must agree may differ, as a share of their spread
        (largest minus smallest). Engines that sum in float32 agree to about 1e-5, and fits to
        convergence agree to their own tolerance; a fit that stops early needs a larger `rtol`.
    plain : callable, optional
        A function from queries to the scores of their items by the engine's own training, without
        weights. The ranker must agree with it when all pairs have weight 1.
    skip : collection of str
        Names of properties that this ranker need not have.

    Raises
    ------
    ContractError
        If a property fails. The message says which, by how much, and what the ranker should do;
        `properties` has the names.

    Notes
    -----
    The properties, in the order of `RANKER_CHECKS`:

    learns
        Items with higher labels get higher scores: the AUC on the training items is at least 0.6.
    unit weights
        A table of ones is plain training: `fit_pairs` agrees with `fit`, if there is one, with
        queries without groups, and with `plain`.
    scale
        A table, 3 times that table and 0.1 times that table give the same scores.
    weights matter
        Pairs of a cell are respected more if the cell has weight 9 than if contrary pairs have it.
    integer weights
        Weights are repetitions. Some queries occur twice, the copy in other groups; weights of 3
        and 1 for the two agree with 2 and 2. Rows and total weight are the same in both, so this
        is exact whatever the engine's penalties and limits. A ranker that draws by row or by batch
        (bootstraps, sampled pairs, batches of queries) does not have this property.
    zero weights
        A cell of weight 0 agrees with queries of weight 0, and with queries whose items all have
        the same label, so that they have no pairs. All three have the same rows, because an engine
        may bin features by all rows. The scores of the other queries are compared.
    weights multiply
        The weight of a pair is its table entry times its query's weight times its items' weights:
        doubling a cell by any of the three gives the same scores, and equal weights for all items
        and queries change nothing.
    missing groups
        Pairs with an item of unknown group have weight 1, like a group with ones in the table.
    row order
        Shuffled rows, with mixed queries, give every item the same score. A ranker that draws by
        row does not have this property.
    clone
        `sklearn.base.clone` of a fitted ranker has the same parameters, is not fitted, and fits to
        the same scores.
    parameters
        Fitting does not change the parameters, including those of nested estimators and the
        weights of torch modules, nor the features or the table.
    previous
        A fit with a previous one agrees with a fit without, and does not change the scores of the
        previous one.
    predict
        Scores are finite float64 values of shape (n_items,); each depends on its own row only,
        whether that was trained on or not; no group is needed.
    seed
        Two fits of clones agree, whatever the state of NumPy's and Python's global generators.
    interruption
        A fit that Ctrl-C ends anywhere leaves nothing broken: the same ranker fits the same
        queries again, to the scores of an uninterrupted fit, and a previous model's scores do not
        change. The fit must raise KeyboardInterrupt (sometimes, an engine may raise its own error
        instead).
    following
        If there is `fit_following`, and it does not raise `InputError`, it agrees with `fit_pairs`
        when the table stays the same.
    response
        If there is `response`, it predicts how the scores follow the table, to within a quarter.
    FairRanker
        `FairRanker` with this ranker fits, predicts, and predicts the same after pickling.

    Checks of weights compare scores up to a common constant, because no pair sees it. No check
    compares a weight with more or fewer rows, because the number of rows changes an engine's bins,
    its limits on the size of a leaf and the strength of its penalties.

    A ranker that scales features by weighted rows has "zero weights" and "weights multiply" only
    as far as the scale makes no difference: rows have the weights of items and queries, but no
    table entry. `LinearRanker` does so for its penalty, and passes unless the penalty is strong.

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
    """Yield the checks of a ranker one by one, for example to parametrise a test.

    Parameters
    ----------
    ranker, rtol, plain, skip
        As in `check_ranker`.

    Yields
    ------
    name : str
    check : callable without arguments that raises `ContractError`

    Examples
    --------
    With pytest::

        CHECKS = dict(ranker_checks(MyRanker(random_state=0)))

        @pytest.mark.parametrize("name", CHECKS)
        def test_contract(name):
            CHECKS[name]()
    """
    return select(RANKER_CHECKS, skip, ranker, rtol=rtol, plain=plain)
