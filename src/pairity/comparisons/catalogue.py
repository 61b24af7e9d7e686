"""contenders: every method there is, for one constraint, each with settings to try."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pairity._utils.validation import show
from pairity.baselines import exposure_lp, item_weights, lagrangian, regularised
from pairity.baselines.methods import Method, as_method
from pairity.constraints.pairwise import as_constraint
from pairity.exceptions import InputError
from pairity.rankers.linear import LinearRanker
from pairity.reweighting.fair_ranker import FairRanker

SETTINGS: dict[str, tuple[str, tuple[float, ...]]] = {
    "unconstrained": ("", ()),
    "reweighted": ("tolerance", (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)),
    "item weights": ("tolerance", (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)),
    "exposure LP": ("slack", (0.0, 0.1, 0.2, 0.4, 0.6, 1.0)),
    "Lagrangian": ("slack", (0.0, 0.02, 0.05, 0.1, 0.2, 0.3)),
    "regularised": ("strength", (0.05, 0.1, 0.2, 0.4, 1.0, 3.0)),
}
"""The setting of each method that trades utility for evenness, and the values to try."""


def contenders(
    constraint: Any = "inter",
    names: Sequence[str] | None = None,
    *,
    ranker: Any = None,
    budget: int = 6,
) -> list[Method]:
    """Our method, the plain ranker and the rivals, each with settings that span its trade-off.

    Parameters
    ----------
    constraint : str or Constraint, default="inter"
        The violation to lower. Methods that know other ones only are given the closest: item
        weights even out the rate of positive items (of all items for statistical parity), the
        exposure programme exposure by merit (by numbers for statistical parity), and the
        correlation penalty takes all preference pairs for statistical parity.
    names : sequence of str, optional
        Which of `SETTINGS`; by default all.
    ranker : ranker or engine's model, optional
        What "unconstrained", "reweighted" and "exposure LP" train; by default `LinearRanker`. The
        others are linear by themselves. Of any other ranker, "reweighted" lowers the violation on
        a fifth of the training queries that it is not trained on: it may know the rest by heart.
    budget : int, default=6
        The most settings of a method.

    Returns
    -------
    list of Method

    Examples
    --------
    >>> from pairity.comparisons.catalogue import contenders
    >>> contenders("inter", ["unconstrained", "reweighted"], budget=2)
    [unconstrained(), reweighted(tolerance=0.0), reweighted(tolerance=0.2)]
    """
    chosen = as_constraint(constraint)
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise InputError(f"budget is {show(budget)}; give the number of settings, such as 6.")
    model = LinearRanker() if ranker is None else ranker
    held_out = None if isinstance(model, LinearRanker) else 0.2
    statistical = chosen.name == "statistical"
    makers: dict[str, Callable[..., Method]] = {
        "unconstrained": partial(as_method, model, name="unconstrained"),
        "reweighted": partial(
            as_method, FairRanker(ranker, constraint, validation=held_out), name="reweighted"
        ),
        "item weights": partial(
            item_weights, "demographic parity" if statistical else "equal opportunity"
        ),
        "exposure LP": partial(
            exposure_lp, ranker, constraint="parity" if statistical else "impact"
        ),
        "Lagrangian": partial(lagrangian, constraint),
        "regularised": partial(regularised, "marginal" if statistical else constraint),
    }
    for name in names or ():
        if name not in makers:
            raise InputError(
                f"There is no method named {show(name)}. Choose from "
                f"{', '.join(map(repr, makers))}."
            )
    return [
        method for name in dict.fromkeys(names or makers) for method in _each(name, makers, budget)
    ]


def _each(name: str, makers: dict[str, Callable[..., Method]], budget: int) -> list[Method]:
    setting, values = SETTINGS[name]
    if not setting:
        return [makers[name]()]
    if budget == 1:
        return [makers[name](**{setting: values[1]})]
    at = np.linspace(0, len(values) - 1, min(budget, len(values))).round().astype(int)
    return [makers[name](**{setting: values[k]}) for k in at]
