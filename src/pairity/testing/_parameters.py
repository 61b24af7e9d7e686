"""Parameters of rankers, compared before and after a fit."""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted


def snapshot(value: Any) -> Any:
    """Copy a parameter for a later comparison, with nested parameters and weights of modules."""
    if isinstance(value, type) or callable(getattr(value, "randint", None)):
        return value  # a random number generator changes when it is used
    if hasattr(value, "get_params"):
        return type(value), snapshot(value.get_params(deep=False))
    if callable(getattr(value, "state_dict", None)):
        return type(value), snapshot(dict(value.state_dict()))
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {name: snapshot(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [snapshot(entry) for entry in value]
    return value


def fitted_parameters(ranker: Any) -> list[str]:
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


def equal(a: Any, b: Any) -> bool:
    """Whether two snapshots are equal; NaN equals NaN."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[name], b[name]) for name in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return a is b or bool(a == b) or (a != a and b != b)


def changed_parameters(after: tuple[Any, Any], before: tuple[Any, Any]) -> str:
    """The names of the parameters that differ between two snapshots of a ranker."""
    return ", ".join(name for name in after[1] if not equal(after[1][name], before[1].get(name)))
