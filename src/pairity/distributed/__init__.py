"""More than one machine, with Dask: partitions of whole queries, and training on all workers.

`FairRanker.fit`, `FairRanker.predict` and `audit` take Dask collections by themselves; what is
here to be called is `repartition_by_query`, which brings the rows of each query together.
"""

from pairity.distributed.partitions import repartition_by_query

__all__ = ["repartition_by_query"]
