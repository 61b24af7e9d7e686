"""Tables in, `Queries` out, wherever the rows live: readers, columns, groups, splits, digests.

Names are imported when they are first used, so that ``import pairity.data`` is fast.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from pairity.data.groups import quantile_groups as quantile_groups
    from pairity.data.letor import LetorArrays as LetorArrays
    from pairity.data.letor import read_letor as read_letor
    from pairity.data.letor import read_letor_arrays as read_letor_arrays
    from pairity.data.parquet import read_parquet as read_parquet
    from pairity.data.queries import Queries as Queries
    from pairity.data.tables import read_table as read_table
    from pairity.data.trec import read_trec as read_trec

_MODULES = {
    "LetorArrays": "letor",
    "Queries": "queries",
    "quantile_groups": "groups",
    "read_letor": "letor",
    "read_letor_arrays": "letor",
    "read_parquet": "parquet",
    "read_table": "tables",
    "read_trec": "trec",
}

__all__ = [
    "LetorArrays",
    "Queries",
    "quantile_groups",
    "read_letor",
    "read_letor_arrays",
    "read_parquet",
    "read_table",
    "read_trec",
]


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'pairity.data' has no attribute {name!r}")
    return getattr(_import_module(f"pairity.data.{_MODULES[name]}"), name)
