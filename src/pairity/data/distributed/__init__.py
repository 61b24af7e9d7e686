"""More than one machine, with Dask: partitions of whole queries, and training on all workers.

`FairRanker.fit`, `FairRanker.predict` and `audit` take Dask collections by themselves; what is
here to be called is `read_parquet`, with which workers read Parquet files in partitions of whole
queries, and `repartition_by_query`, which brings the rows of each query together.
"""

from typing import Any

from pairity.data.distributed.partitions import repartition_by_query

__all__ = ["read_parquet", "repartition_by_query"]


def __getattr__(name: str) -> Any:
    if name == "read_parquet":  # when it is asked for: it takes all data sets along
        from pairity.data.distributed.parquet import read_parquet

        return read_parquet
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
