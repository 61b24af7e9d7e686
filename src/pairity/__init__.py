"""Rankers that treat groups even-handedly: measure, reweight pairs, retrain, trade off.

Names are imported when they are first used, so that ``import pairity`` is quick.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from pairity.algorithm import Outcome as Outcome
    from pairity.audits import Audit as Audit
    from pairity.audits import audit as audit
    from pairity.constraints import Constraint as Constraint
    from pairity.constraints import InterGroup as InterGroup
    from pairity.constraints import IntraGroup as IntraGroup
    from pairity.constraints import Marginal as Marginal
    from pairity.constraints import StatisticalParity as StatisticalParity
    from pairity.exceptions import InputError as InputError
    from pairity.exceptions import PairityError as PairityError
    from pairity.exceptions import PairityWarning as PairityWarning
    from pairity.fair_ranker import FairRanker as FairRanker
    from pairity.frontiers import Frontier as Frontier
    from pairity.groups import quantile_groups as quantile_groups
    from pairity.methods import Method as Method
    from pairity.methods import as_method as as_method
    from pairity.model_files import load as load
    from pairity.pair_weights import PairWeights as PairWeights
    from pairity.queries import Queries as Queries
    from pairity.rankers.linear import LinearRanker as LinearRanker
    from pairity.reports import Report as Report
    from pairity.solvers import DampedStep as DampedStep
    from pairity.solvers import PlainStep as PlainStep
    from pairity.sweeps import sweep as sweep

_HOME = {
    "Audit": "audits",
    "Constraint": "constraints",
    "DampedStep": "solvers",
    "FairRanker": "fair_ranker",
    "Frontier": "frontiers",
    "InputError": "exceptions",
    "InterGroup": "constraints",
    "IntraGroup": "constraints",
    "LinearRanker": "rankers.linear",
    "Marginal": "constraints",
    "Method": "methods",
    "Outcome": "algorithm",
    "PairWeights": "pair_weights",
    "PairityError": "exceptions",
    "PairityWarning": "exceptions",
    "PlainStep": "solvers",
    "Queries": "queries",
    "Report": "reports",
    "StatisticalParity": "constraints",
    "as_method": "methods",
    "audit": "audits",
    "load": "model_files",
    "quantile_groups": "groups",
    "sweep": "sweeps",
}

__version__ = "0.1.0"
__all__ = [
    "Audit",
    "Constraint",
    "DampedStep",
    "FairRanker",
    "Frontier",
    "InputError",
    "InterGroup",
    "IntraGroup",
    "LinearRanker",
    "Marginal",
    "Method",
    "Outcome",
    "PairWeights",
    "PairityError",
    "PairityWarning",
    "PlainStep",
    "Queries",
    "Report",
    "StatisticalParity",
    "as_method",
    "audit",
    "load",
    "quantile_groups",
    "sweep",
]


def __getattr__(name: str) -> _Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pairity' has no attribute {name!r}")
    value = getattr(_import_module(f"pairity.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
