"""Rankers that treat groups even-handedly: measure, reweight pairs, retrain, trade off.

Names are imported when they are first used, so that ``import pairity`` is quick.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from pairity.audits.audit import Audit as Audit
    from pairity.audits.audit import audit as audit
    from pairity.baselines.methods import Method as Method
    from pairity.baselines.methods import as_method as as_method
    from pairity.comparisons.frontiers import Frontier as Frontier
    from pairity.comparisons.sweeps import sweep as sweep
    from pairity.constraints import Constraint as Constraint
    from pairity.constraints import InterGroup as InterGroup
    from pairity.constraints import IntraGroup as IntraGroup
    from pairity.constraints import Marginal as Marginal
    from pairity.constraints import StatisticalParity as StatisticalParity
    from pairity.data.groups import quantile_groups as quantile_groups
    from pairity.data.queries import Queries as Queries
    from pairity.exceptions import InputError as InputError
    from pairity.exceptions import PairityError as PairityError
    from pairity.exceptions import PairityWarning as PairityWarning
    from pairity.rankers.linear import LinearRanker as LinearRanker
    from pairity.reports.report import Report as Report
    from pairity.reweighting.algorithm import Outcome as Outcome
    from pairity.reweighting.fair_ranker import FairRanker as FairRanker
    from pairity.reweighting.persistence import load as load
    from pairity.reweighting.solvers import DampedStep as DampedStep
    from pairity.reweighting.solvers import PlainStep as PlainStep
    from pairity.reweighting.weights import PairWeights as PairWeights

_HOME = {
    "Audit": "audits.audit",
    "Constraint": "constraints",
    "DampedStep": "reweighting.solvers",
    "FairRanker": "reweighting.fair_ranker",
    "Frontier": "comparisons.frontiers",
    "InputError": "exceptions",
    "InterGroup": "constraints",
    "IntraGroup": "constraints",
    "LinearRanker": "rankers.linear",
    "Marginal": "constraints",
    "Method": "baselines.methods",
    "Outcome": "reweighting.algorithm",
    "PairWeights": "reweighting.weights",
    "PairityError": "exceptions",
    "PairityWarning": "exceptions",
    "PlainStep": "reweighting.solvers",
    "Queries": "data.queries",
    "Report": "reports.report",
    "StatisticalParity": "constraints",
    "as_method": "baselines.methods",
    "audit": "audits.audit",
    "load": "reweighting.persistence",
    "quantile_groups": "data.groups",
    "sweep": "comparisons.sweeps",
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
