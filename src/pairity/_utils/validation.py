"""Checks of settings, and short representations of values for messages."""

import math
import reprlib
from numbers import Integral, Real
from typing import Any

import numpy as np

from pairity.exceptions import InputError

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60


def is_real(value: Any) -> bool:
    """Whether a setting is a real number and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def show(value: Any) -> str:
    """A short representation of any value, for messages."""
    if isinstance(value, np.generic) and value.dtype.kind in "biufcU":
        value = value.item()
    try:
        return _SHORT.repr(value)
    except Exception:  # such as an integer with more digits than Python converts
        return f"a value of type {type(value).__name__}"


def require_number(
    value: Any, name: str, *, positive: bool = False, most: float = math.inf
) -> float:
    """Return a finite number from 0 (above 0 if `positive`) to `most`, or refuse the value."""
    if is_real(value) and 0.0 <= value <= most and value < math.inf and (value or not positive):
        return float(value)
    needed = "a number above 0" if positive else "a number, 0 or greater"
    needed += "" if most == math.inf else f", up to {most:g}"
    raise InputError(f"{name} must be {needed} (got {show(value)}).")


def require_count(value: Any, name: str, *, least: int = 1) -> int:
    """Return a whole number of at least `least`, or refuse the value."""
    if is_real(value) and isinstance(value, Integral) and int(value) >= least:
        return int(value)
    raise InputError(f"{name} must be a whole number, {least} or greater (got {show(value)}).")


def require_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Refuse an argument that is not one of the choices."""
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        allowed = ", ".join(map(repr, choices))
        raise InputError(f"{name} must be one of {allowed} (got {show(value)}).")
