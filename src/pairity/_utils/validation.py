"""Checks of settings, and values as messages show them."""

from __future__ import annotations

import reprlib
from numbers import Real
from typing import Any

import numpy as np

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60


def is_real(value: Any) -> bool:
    """Whether a setting is a number, and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def show(value: Any) -> str:
    """A value as a message shows it: short, whatever it is."""
    if isinstance(value, np.generic) and value.dtype.kind in "biufcU":
        value = value.item()
    try:
        return _SHORT.repr(value)
    except Exception:  # such as a whole number of more digits than Python likes to write
        return f"a value of type {type(value).__name__}"
