"""Totals of a constraint over parts of the data add up to those of all data."""

import numpy as np
import pytest

from pairity.constraints import CATALOGUE
from pairity.datasets import make_biased_ranking
from pairity.pairs.cells import mean_auc


@pytest.mark.parametrize("name", ["statistical", "inter", "intra", "marginal"])
@pytest.mark.parametrize("average", ["query", "pair"])
def test_sums_of_parts_add_up(name, average):
    queries = make_biased_ranking(120, 20, n_labels=3, random_state=0).queries()
    scores = np.random.default_rng(0).normal(size=queries.n_items)
    constraint = CATALOGUE[name](average=average)
    number = np.arange(queries.n_queries) % 3
    parts = [
        (queries.take(number == part), scores[number[queries.query] == part]) for part in range(3)
    ]
    totals = sum(constraint.totals(*part) for part in parts)
    delta = constraint.from_totals(totals, queries.groups)
    np.testing.assert_allclose(delta, constraint.delta(queries, scores), atol=1e-13)
    assert mean_auc(queries, scores) == pytest.approx(
        sum(part.n_queries * mean_auc(part, own_scores) for part, own_scores in parts) / 120
    )
