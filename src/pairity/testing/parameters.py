"""Parameters of rankers, compared before and after a fit."""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted


def frozen(value: Any) -> Any:
    """What can be compared later, of a parameter: nested parameters, arrays, weights of modules."""
    if isinstance(value, type) or callable(getattr(value, "randint", None)):
        return value  # a generator moves on when it is used
    if hasattr(value, "get_params"):
        params = value.get_params(deep=False)
        return type(value), {name: frozen(each) for name, each in params.items()}
    if callable(getattr(value, "state_dict", None)):
        return type(value), {name: frozen(each) for name, each in value.state_dict().items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {name: frozen(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [frozen(each) for each in value]
    return value


def fitted_ones(ranker: Any) -> list[str]:
    """The names of the parameters that are fitted estimators."""
    params = ranker.get_params() if hasattr(ranker, "get_params") else {}
    return [name for name, value in params.items() if _is_fitted(value)]


def _is_fitted(value: Any) -> bool:
    if isinstance(value, type) or not hasattr(value, "get_params"):
        return False
    try:
        check_is_fitted(value)
    except (NotFittedError, TypeError):
        return False
    return True


def equal(one: Any, other: Any) -> bool:
    """Whether two frozen values are the same; NaN is NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return one is other or bool(one == other) or (one != one and other != other)


def differing(after: tuple[Any, Any], before: tuple[Any, Any]) -> str:
    """The names of the parameters that are not what they were."""
    return ", ".join(name for name in after[1] if not equal(after[1][name], before[1].get(name)))
