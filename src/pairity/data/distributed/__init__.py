"""Queries on more than one machine, with Dask.

`FairRanker.fit`, `FairRanker.predict` and `audit` accept Dask collections directly, and
`pairity.read_parquet` reads Parquet files on workers. `repartition_by_query` brings the rows of
each query to one partition.
"""

from pairity.data.distributed.partitions import repartition_by_query

__all__ = ["repartition_by_query"]
