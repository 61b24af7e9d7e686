"""Totals of a constraint over parts of the data add up to those of all data."""

import numpy as np
import pytest

from pairity.datasets import make_biased_ranking


@pytest.mark.parametrize("constraint", ["statistical", "inter", "intra", "marginal"])
@pytest.mark.parametrize("average", ["query", "pair"])
def test_sums_of_parts_add_up(constraint, average):
    from pairity.constraints import CATALOGUE
    from pairity.pairs.cells import mean_auc

    queries = make_biased_ranking(120, 20, n_labels=3, random_state=0).queries()
    scores = np.random.default_rng(0).normal(size=queries.n_items)
    own = CATALOGUE[constraint](average=average)
    number = np.arange(queries.n_queries) % 3
    parts = [queries.take(number == at) for at in range(3)]
    held = [scores[np.isin(queries.query, np.flatnonzero(number == at))] for at in range(3)]
    totals = sum(own.totals(part, each) for part, each in zip(parts, held, strict=True))
    delta = own.from_totals(totals, queries.groups)
    np.testing.assert_allclose(delta, own.delta(queries, scores), atol=1e-13)
    assert mean_auc(queries, scores) == pytest.approx(
        sum(p.n_queries * mean_auc(p, s) for p, s in zip(parts, held, strict=True)) / 120
    )
