"""Checks of settings, and short representations of values for messages."""

from __future__ import annotations

import reprlib
from numbers import Real
from typing import Any

import numpy as np

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
