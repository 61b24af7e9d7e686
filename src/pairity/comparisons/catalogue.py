"""The catalogue of methods: how each is made, its trade-off, and the settings that are tried.

`METHODS` is the only table of this kind. `make_methods` makes what `pairity.sweep` compares,
`pairity.tune` reads the paper's tuning ranges, and `pairity.paper` the settings that it tries.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pairity._utils.validation import require_choice, require_count
from pairity.baselines.correlation_penalty import correlation_penalty
from pairity.baselines.exposure_lp import exposure_lp
from pairity.baselines.item_weights import item_weights
from pairity.baselines.lagrangian import lagrangian
from pairity.baselines.methods import Method, as_method
from pairity.constraints import as_constraint
from pairity.rankers.linear import LinearRanker
from pairity.reweighting.fair_ranker import FairRanker
from pairity.reweighting.solvers import PlainStep

# The limits that the reproduction tries, in the order in which a quick trial takes the first ones.
_LIMITS = (0.01, 0.1, 0.05, 0.2, 0.3, 0.5)
_SLACKS = (0.0, *_LIMITS[1:])

# Nearly the hinge loss, which the paper's linear ranker and the Lagrangian baseline minimise.
MARGIN = 4.0


@dataclass(frozen=True, eq=False)
class Entry:
    """One method of the catalogue.

    Attributes
    ----------
    make : callable
        Makes the Method from a constraint, a ranker (or None) and settings by keyword.
    setting : str
        The setting that trades utility for a lower violation; empty for a method that has none.
    values : tuple of float
        The values of this setting that a sweep tries.
    paper_range : mapping from a setting to a list of values
        What `pairity.tune` tries by default. The slacks are the steps in which the paper raises
        them. The paper does not run the correlation penalty, and it gives no tolerances for item
        weights, which often end before 50 rounds: these ranges are pairity's.
    reproduction : tuple of mappings from a setting to its value
        What `pairity.paper` tries, a quick trial only the first ones.
    """

    make: Callable[..., Method]
    setting: str = ""
    values: tuple[float, ...] = ()
    paper_range: Mapping[str, list[Any]] = field(default_factory=dict)
    reproduction: tuple[Mapping[str, Any], ...] = ()


def _plain(constraint: Any, ranker: Any = None, **settings: Any) -> Method:  # noqa: ARG001
    return as_method(LinearRanker() if ranker is None else ranker, name="plain", **settings)


def _reweighted(constraint: Any, ranker: Any = None, **settings: Any) -> Method:
    return as_method(FairRanker(ranker, constraint), name="reweighted", **settings)


def _item_weights(constraint: Any, ranker: Any = None, **settings: Any) -> Method:  # noqa: ARG001
    parity = _is_statistical(constraint)
    return item_weights("demographic parity" if parity else "equal opportunity", **settings)


def _exposure_lp(constraint: Any, ranker: Any = None, **settings: Any) -> Method:
    parity = _is_statistical(constraint)
    return exposure_lp(ranker, constraint="parity" if parity else "impact", **settings)


def _lagrangian(constraint: Any, ranker: Any = None, **settings: Any) -> Method:  # noqa: ARG001
    return lagrangian(constraint, **settings)


def _correlation_penalty(constraint: Any, ranker: Any = None, **settings: Any) -> Method:  # noqa: ARG001
    related = "marginal" if _is_statistical(constraint) else constraint
    return correlation_penalty(related, **settings)


def _is_statistical(constraint: Any) -> bool:
    return as_constraint(constraint).name == "statistical"


METHODS: dict[str, Entry] = {
    "plain": Entry(
        _plain,
        reproduction=(
            {}, {"alpha": 0.01, "margin": MARGIN}, {"margin": MARGIN}, {"alpha": 0.01},
            {"alpha": 0.1, "margin": MARGIN}, {"alpha": 0.1},
        ),
    ),
    "reweighted": Entry(
        _reweighted,
        "tolerance",
        (0.0, 0.01, 0.02, 0.05, 0.1, 0.2),
        {"solver": [PlainStep(eta=1.0)], "max_rounds": [10, 20, 30, 40, 50]},
        tuple(
            {"ranker": LinearRanker(alpha, margin=MARGIN), "tolerance": tolerance}
            for tolerance in (0.01, 0.05)
            for alpha in (0.01, 0.001, 0.1)
        ),
    ),
    "item weights": Entry(
        _item_weights,
        "tolerance",
        (0.0, 0.01, 0.02, 0.05, 0.1, 0.2),
        {"eta": [1.0], "max_rounds": [50, 60, 70, 80, 90, 100], "tolerance": [0.01, 0.05]},
        tuple({"tolerance": tolerance} for tolerance in _LIMITS),
    ),
    "exposure lp": Entry(
        _exposure_lp,
        "slack",
        (0.0, 0.1, 0.2, 0.4, 0.6, 1.0),
        {"slack": [step / 10 for step in range(11)]},
        tuple({"slack": 2.0 * slack} for slack in _SLACKS),
    ),
    "lagrangian": Entry(
        _lagrangian,
        "slack",
        (0.0, 0.02, 0.05, 0.1, 0.2, 0.3),
        {"slack": [step / 20 for step in range(11)]},
        tuple({"slack": slack} for slack in _SLACKS),
    ),
    "correlation penalty": Entry(
        _correlation_penalty,
        "strength",
        (0.05, 0.1, 0.2, 0.4, 1.0, 3.0),
        {"strength": [0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6, 1.0, 3.0]},
    ),
}  # fmt: skip
"""Every method by its name."""


def make_methods(
    constraint: Any = "inter",
    names: Sequence[str] | None = None,
    *,
    ranker: Any = None,
    budget: int = 6,
) -> list[Method]:
    """Make every method for one constraint, with settings that span its trade-off.

    Parameters
    ----------
    constraint : str or Constraint, default="inter"
        The violation to lower. A method that cannot express it receives the closest constraint
        that it can: item weights equalise the rate of positive items (of all items for
        statistical parity), the exposure program equalises exposure by merit (by size for
        statistical parity), and the correlation penalty takes all preference pairs for
        statistical parity.
    names : sequence of str, optional
        Which of `METHODS`; by default all.
    ranker : ranker or an engine's model, optional
        What "plain", "reweighted" and "exposure lp" train. By default "plain" and "reweighted"
        train a `LinearRanker`, and "exposure lp" fits least squares. The other methods are
        always linear.
    budget : int, default=6
        The largest number of settings per method.

    Returns
    -------
    list of Method

    Examples
    --------
    >>> from pairity.comparisons.catalogue import make_methods
    >>> make_methods("inter", ["plain", "reweighted"], budget=2)
    [plain(), reweighted(tolerance=0.0), reweighted(tolerance=0.2)]
    """
    require_count(budget, "budget")
    as_constraint(constraint)  # refuses an unknown name before anything is made
    chosen = tuple(dict.fromkeys(names or METHODS))
    for name in chosen:
        require_choice("A method's name", name, tuple(METHODS))
    return [
        METHODS[name].make(constraint, ranker, **settings)
        for name in chosen
        for settings in _sweep_settings(METHODS[name], budget)
    ]


def _sweep_settings(entry: Entry, budget: int) -> list[dict[str, float]]:
    if not entry.setting:
        return [{}]
    last = len(entry.values) - 1
    chosen = [1] if budget == 1 else np.linspace(0, last, min(budget, last + 1)).round().astype(int)
    return [{entry.setting: entry.values[index]} for index in chosen]
