"""Tables in, `Queries` out, wherever the rows live: readers, columns, groups, splits, digests.

Names are imported when they are first used, so that ``import pairity.data`` is fast.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from pairity._utils.lazy import lazy_exports as _lazy_exports

if _TYPE_CHECKING:
    from pairity.data.groups import quantile_groups as quantile_groups
    from pairity.data.letor import LetorArrays as LetorArrays
    from pairity.data.letor import read_letor as read_letor
    from pairity.data.letor import read_letor_arrays as read_letor_arrays
    from pairity.data.parquet import read_parquet as read_parquet
    from pairity.data.queries import Queries as Queries
    from pairity.data.tables import read_table as read_table
    from pairity.data.trec import read_trec as read_trec

__getattr__, __dir__, __all__ = _lazy_exports(
    __name__,
    {
        "groups": "quantile_groups",
        "letor": "LetorArrays read_letor read_letor_arrays",
        "parquet": "read_parquet",
        "queries": "Queries",
        "tables": "read_table",
        "trec": "read_trec",
    },
)
