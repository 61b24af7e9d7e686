"""Compiled code that takes lines of a text table apart and reads their numbers."""

from __future__ import annotations

from numba import njit

from pairity.data.letor_kernels import read_number

WHOLE, NUMBER, EMPTY, OTHER = 0, 1, 2, 3
_MOST_DIGITS = 15  # of a whole number that float64 holds whatever its digits are
_LINE_FEED, _RETURN, _PLUS, _MINUS, _POINT = 10, 13, 43, 45, 46


@njit(cache=True, nogil=True)
def _is_digit(byte):
    return 48 <= byte <= 57


@njit(cache=True, nogil=True)
def _kind(text, begin, end):
    """What a number is; OTHER where its digits may be too many for float64."""
    if not _is_digit(text[begin]):
        begin += 1
    for at in range(begin, end):
        if not _is_digit(text[at]):
            return NUMBER
    return WHOLE if end - begin <= _MOST_DIGITS else OTHER


@njit(cache=True, nogil=True)
def _ends(text, at, delimiter):
    """Whether a cell ends here."""
    byte = text[at]
    return byte in (delimiter, _LINE_FEED) or (byte == _RETURN and text[at + 1] == _LINE_FEED)


@njit(cache=True, nogil=True)
def parse_cells(text, delimiter, begins, ends, values, kinds):
    """Take whole lines apart; there are no quotes, and the last byte is a line feed.

    Fills arrays of shape (n_columns, n_lines): where each cell begins and ends, its value (NaN
    where it is empty) and what it is: WHOLE, NUMBER, EMPTY or OTHER. Blank lines are left out.

    Returns (number of rows, number of lines, cells of the last line); where a line has another
    number of cells than there are columns, it is the last one read.
    """
    width = begins.shape[0]
    at, row, line = 0, 0, 0
    while at < len(text):
        line += 1
        if _ends(text, at, _LINE_FEED):  # a blank line
            at += 2 if text[at] == _RETURN else 1
            continue
        column = 0
        while True:
            begin, kind, value = at, OTHER, 0.0
            byte = text[at]
            if _ends(text, at, delimiter):
                kind, value = EMPTY, float("nan")
            elif _is_digit(byte) or byte in (_MINUS, _PLUS, _POINT):
                end, value, sure = read_number(text, at)
                if end > 0 and sure and _ends(text, end, delimiter):
                    kind, at = _kind(text, begin, end), end
            if kind == OTHER:
                while not _ends(text, at, delimiter):
                    at += 1
            if column < width:
                begins[column, row], ends[column, row] = begin, at
                values[column, row], kinds[column, row] = value, kind
            column += 1
            if text[at] != delimiter:
                break
            at += 1
        at += 2 if text[at] == _RETURN else 1
        if column != width:
            return row, line, column
        row += 1
    return row, line, width
