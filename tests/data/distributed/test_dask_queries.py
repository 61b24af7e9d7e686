"""Queries on worker processes: sums, splits and shares survive the loss of a worker."""

import os
import signal

import numpy as np
import pytest

from pairity import InterGroup
from pairity.data.distributed.queries import DaskQueries
from support.clusters import columns, first_feature

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask and of the engines


def test_queries_that_are_split_survive_the_loss_of_a_worker(client, spread):
    queries = DaskQueries.from_collections(client, raw=False, **columns(spread))
    train, test = queries.split(0.25, 0)
    del queries
    assert (train.n_queries, test.n_queries) == (90, 30)
    assert train.digest() != test.digest()
    before = [InterGroup().delta(part, part.each(first_feature)) for part in (train, test)]
    os.kill(sorted(client.run(os.getpid).values())[0], signal.SIGKILL)
    client.wait_for_workers(2, timeout=60)
    for part, violation in zip((train, test), before, strict=True):
        assert len(part.addresses()) == len(part.shares)
        part.place()  # from the pieces, as where a round is repeated
        now = InterGroup().delta(part, part.each(first_feature))
        np.testing.assert_allclose(now, violation, atol=1e-12)


def test_sums_survive_the_loss_of_a_worker(client, spread):
    queries = DaskQueries.from_collections(client, raw=False, **columns(spread))
    scores = queries.each(first_feature)
    before = InterGroup().delta(queries, scores)
    os.kill(sorted(client.run(os.getpid).values())[0], signal.SIGKILL)
    np.testing.assert_allclose(InterGroup().delta(queries, scores), before, atol=1e-12)
