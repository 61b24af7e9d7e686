"""The catalogue of methods: every method for every constraint, within a budget of settings."""

import pytest

from pairity import InputError, LinearRanker
from pairity.comparisons.catalogue import METHODS, make_methods


@pytest.mark.parametrize("constraint", ["statistical", "inter", "intra", "marginal"])
def test_every_method_for_every_constraint(constraint):
    made = make_methods(constraint)
    assert list(dict.fromkeys(method.name for method in made)) == list(METHODS)
    assert len(made) == 1 + 5 * 6
    assert len({repr(method) for method in made}) == len(made)


@pytest.mark.parametrize(("budget", "expected"), [(1, [0.01]), (2, [0.0, 0.2]), (99, 6)])
def test_budgets(budget, expected):
    methods = make_methods(names=["reweighted"], budget=budget)
    tolerances = [method.settings["tolerance"] for method in methods]
    assert tolerances == expected or len(tolerances) == expected


def test_the_ranker_is_that_of_the_caller():
    made = make_methods(names=["plain", "reweighted"], ranker=LinearRanker(alpha=0.5))
    assert all("alpha=0.5" in repr(method) or "0.5" in str(method.settings) for method in made)


def test_what_is_refused():
    with pytest.raises(InputError, match=r"method's name must be .* \(got 'ours'\)"):
        make_methods(names=["ours"])
    with pytest.raises(InputError, match=r"budget must be .* \(got 0\)"):
        make_methods(budget=0)
    with pytest.raises(InputError, match="no constraint named 'inte'"):
        make_methods("inte")
