"""Measure how a ranker orders groups, learn pair weights, and retrain it to lower a disparity.

Public names are imported when they are first used, so that ``import pairity`` is quick.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from pairity._utils.lazy import lazy_exports as _lazy_exports

if _TYPE_CHECKING:
    from pairity.audits.audit import Audit as Audit
    from pairity.audits.audit import audit as audit
    from pairity.audits.estimates import Estimate as Estimate
    from pairity.audits.tables import compare as compare
    from pairity.baselines.methods import Method as Method
    from pairity.baselines.methods import as_method as as_method
    from pairity.comparisons.frontiers import Frontier as Frontier
    from pairity.comparisons.sweeps import sweep as sweep
    from pairity.comparisons.tuning import tune as tune
    from pairity.constraints import Constraint as Constraint
    from pairity.constraints import InterGroup as InterGroup
    from pairity.constraints import IntraGroup as IntraGroup
    from pairity.constraints import Marginal as Marginal
    from pairity.constraints import StatisticalParity as StatisticalParity
    from pairity.data.groups import quantile_groups as quantile_groups
    from pairity.data.letor import read_letor as read_letor
    from pairity.data.parquet import read_parquet as read_parquet
    from pairity.data.queries import Queries as Queries
    from pairity.data.tables import read_table as read_table
    from pairity.data.trec import read_trec as read_trec
    from pairity.exceptions import InputError as InputError
    from pairity.exceptions import PairityError as PairityError
    from pairity.exceptions import PairityWarning as PairityWarning
    from pairity.rankers.linear import LinearRanker as LinearRanker
    from pairity.reports.collect import collect as collect
    from pairity.reports.report import Report as Report
    from pairity.reweighting.fair_ranker import FairRanker as FairRanker
    from pairity.reweighting.outcomes import Outcome as Outcome
    from pairity.reweighting.persistence import load as load
    from pairity.reweighting.solvers import DampedStep as DampedStep
    from pairity.reweighting.solvers import PlainStep as PlainStep
    from pairity.reweighting.weights import PairWeights as PairWeights

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = _lazy_exports(
    __name__,
    {
        "audits.audit": "Audit audit",
        "audits.tables": "compare",
        "audits.estimates": "Estimate",
        "baselines.methods": "Method as_method",
        "comparisons.frontiers": "Frontier",
        "comparisons.sweeps": "sweep",
        "comparisons.tuning": "tune",
        "constraints": "Constraint InterGroup IntraGroup Marginal StatisticalParity",
        "data.groups": "quantile_groups",
        "data.letor": "read_letor",
        "data.parquet": "read_parquet",
        "data.queries": "Queries",
        "data.tables": "read_table",
        "data.trec": "read_trec",
        "exceptions": "InputError PairityError PairityWarning",
        "rankers.linear": "LinearRanker",
        "reports.collect": "collect",
        "reports.report": "Report",
        "reweighting.fair_ranker": "FairRanker",
        "reweighting.outcomes": "Outcome",
        "reweighting.persistence": "load",
        "reweighting.solvers": "DampedStep PlainStep",
        "reweighting.weights": "PairWeights",
    },
)
