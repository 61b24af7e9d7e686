"""Compiled reading of LETOR lines: bytes in, labels, query ids and entries out.

Each decimal becomes the nearest double. A short decimal takes one exact operation: an integer up to
2^53, multiplied or divided by a power of ten up to 10^22. Other decimals are multiplied by the
leading 128 bits of a power of five, in integers. The product bounds the value from below and above;
if both bounds round to the same double, that is the result. The rest (ties, very small and very
large numbers, and those with more than 19 significant digits) is returned as text for Python's
``float``.
"""

import numpy as np
from numba import njit

LEAST, MOST = -342, 308  # powers of ten
MOST_DIGITS = 19  # that surely fit 64 bits
LARGEST_ID = 2**63 - 1
LARGEST_INDEX = 2**31 - 1

(
    FINE, BAD_LABEL, BAD_QID, LARGE_QID, NO_QID, SOME_QID, BAD_ENTRY, LARGE_INDEX, LOW_INDEX,
    REPEATED_INDEX, FALLING_INDEX, BAD_VALUE, INCOMPLETE,
) = range(13)  # fmt: skip


def _fives():
    """Return the leading 128 bits of every power of five, in two halves, and the power of two."""
    rows = []
    for q in range(LEAST, MOST + 1):
        power = 5 ** abs(q)
        bits = power.bit_length()
        after = bits - 128 if q >= 0 else -(127 + bits)
        leading = (power << 128) >> bits if q >= 0 else (1 << -after) // power
        rows.append((leading >> 64, leading & (2**64 - 1), after))
    upper, lower, shift = zip(*rows, strict=True)
    return np.array(upper, np.uint64), np.array(lower, np.uint64), np.array(shift, np.int64)


_UPPER, _LOWER, _SHIFT = _fives()
_TENS = np.array([float(10**k) for k in range(23)])  # all exact
_TWOS = np.ldexp(1.0, np.arange(-1022, 971))  # none subnormal, and 2^53 times the last is finite

_ONE, _TEN, _HALF_WORD = np.uint64(1), np.uint64(10), np.uint64(32)
_LOW_WORD = np.uint64(2**32 - 1)
_NOTHING, _ALL_BUT_ONE = np.uint64(0), np.uint64(2**64 - 2)
_EXACT = np.uint64(2**53)


@njit(cache=True, nogil=True)
def _product(a, b):
    """Return the 128 bits of a · b, in two halves."""
    a1, a0 = a >> _HALF_WORD, a & _LOW_WORD
    b1, b0 = b >> _HALF_WORD, b & _LOW_WORD
    low, left, right = a0 * b0, a1 * b0, a0 * b1
    middle = (low >> _HALF_WORD) + (left & _LOW_WORD) + (right & _LOW_WORD)
    upper = a1 * b1 + (left >> _HALF_WORD) + (right >> _HALF_WORD) + (middle >> _HALF_WORD)
    return upper, (middle << _HALF_WORD) | (low & _LOW_WORD)


@njit(cache=True, nogil=True)
def _leading_zeros(word):
    count = 0
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(64 - step) == _NOTHING:
            word = word << np.uint64(step)
            count += step
    return count


@njit(cache=True, nogil=True)
def _nearest(digits, q):
    """Return the double nearest to digits · 10^q, and whether it is certain."""
    if q < LEAST or q > MOST:
        return 0.0, False
    zeros = _leading_zeros(digits)
    word = digits << np.uint64(zeros)
    upper, middle = _product(word, _UPPER[q - LEAST])
    carried, _ = _product(word, _LOWER[q - LEAST])
    middle += carried
    if middle < carried:
        upper += _ONE
    # in units of the last bit of `middle`, the number is at least upper:middle, and less than
    # that plus 2
    drop = 11 if upper >> np.uint64(63) != _NOTHING else 10
    half = _ONE << np.uint64(drop - 1)
    rest = upper & ((half << _ONE) - _ONE)
    mantissa = upper >> np.uint64(drop)
    if rest > half or (rest == half and middle > _NOTHING):
        mantissa += _ONE
    elif rest == half or (rest == half - _ONE and middle > _ALL_BUT_ONE):
        return 0.0, False
    exponent = drop + 128 + _SHIFT[q - LEAST] + q - zeros
    if exponent < -1022 or exponent > 970:
        return 0.0, False
    return float(np.int64(mantissa)) * _TWOS[exponent + 1022], True


@njit(cache=True, nogil=True)
def _n_significant(text, begin, end):
    """Return the number of digits of a mantissa, without leading zeros."""
    count = 0
    for position in range(begin, end):
        if text[position] != 46 and (count > 0 or text[position] != 48):
            count += 1
    return count


@njit(cache=True, nogil=True)
def read_number(text, position):
    """Read a decimal: its end (-1 if it is not one), its value, and if that is certain."""
    negative = text[position] == 45
    if negative or text[position] == 43:
        position += 1
    begin = position
    digits = _NOTHING
    digit = np.int64(text[position]) - 48
    while 0 <= digit <= 9:
        digits = digits * _TEN + np.uint64(digit)
        position += 1
        digit = np.int64(text[position]) - 48
    length, q = position - begin, 0
    if text[position] == 46:
        position += 1
        point = position
        digit = np.int64(text[position]) - 48
        while 0 <= digit <= 9:
            digits = digits * _TEN + np.uint64(digit)
            position += 1
            digit = np.int64(text[position]) - 48
        q = point - position
        length -= q
    if length == 0:
        return -1, 0.0, False
    sure = length <= MOST_DIGITS or _n_significant(text, begin, position) <= MOST_DIGITS
    if text[position] == 101 or text[position] == 69:
        position += 1
        falling = text[position] == 45
        if falling or text[position] == 43:
            position += 1
        digit = np.int64(text[position]) - 48
        if not 0 <= digit <= 9:
            return -1, 0.0, False
        power = np.int64(0)
        while 0 <= digit <= 9:
            if power < 100_000_000:
                power = 10 * power + digit
            position += 1
            digit = np.int64(text[position]) - 48
        q += -int(power) if falling else int(power)
    if digits == _NOTHING or not sure:
        value = 0.0
    elif digits <= _EXACT and -22 <= q <= 22:
        value = float(np.int64(digits))
        if q < 0:
            value /= _TENS[-q]
        elif q > 0:
            value *= _TENS[q]
    else:
        value, sure = _nearest(digits, q)
    return position, (-value if negative else value), sure


@njit(cache=True, nogil=True)
def _whole(text, position, largest):
    """Read digits: their end and their value, or -1 if that is above `largest`."""
    begin, value = position, np.int64(0)
    digit = np.int64(text[position]) - 48
    while 0 <= digit <= 9:
        value = 10 * value + digit
        position += 1
        digit = np.int64(text[position]) - 48
    if position - begin > 18:  # it may have wrapped around
        value = np.int64(0)
        for place in range(begin, position):
            digit = np.int64(text[place]) - 48
            if value > (largest - digit) // 10:
                return position, np.int64(-1)
            value = 10 * value + digit
    return position, (value if value <= largest else np.int64(-1))


@njit(cache=True, nogil=True)
def _is_blank(byte):
    return byte == 32 or byte == 9 or byte == 13


@njit(cache=True, nogil=True)
def _ends(byte):
    """Whether a byte may follow a word: a blank, the end of the line, a comment."""
    return byte == 32 or byte == 10 or byte == 9 or byte == 13 or byte == 35


@njit(cache=True, nogil=True)
def parse_lines(
    text, lowest_index, highest_index, complete, labels, qids, ends, indices, values,
    hard_entry, hard_begin, hard_end,
):  # fmt: skip
    """Read complete lines; the last byte of `text` is a line feed.

    Stops at the first line that is not right. Numbers that are not sure are listed in the `hard`
    arrays by their entry (a label as -1 - row) and the bytes they stand in.

    Returns
    -------
    status, position : why and at which byte reading stopped
    rows, entries, hard : the number of each
    has_qid, first_row : whether the first row has a query id (1 or 0), and its byte; -1 if none
    lowest, highest : the least and the largest index
    """
    size, position = len(text), 0
    rows, entries, hard, has_qid = 0, 0, 0, -1
    first_row, lowest, highest = -1, LARGEST_INDEX, -1
    status = FINE
    while position < size:
        while _is_blank(text[position]):
            position += 1
        if text[position] != 10 and text[position] != 35:
            begin = position
            end, value, sure = read_number(text, position)
            if end < 0 or not _ends(text[end]):
                status = BAD_LABEL
                break
            labels[rows] = value
            if not sure:
                hard_entry[hard], hard_begin[hard], hard_end[hard] = -1 - rows, position, end
                hard += 1
            position = end
            while _is_blank(text[position]):
                position += 1
            present = 0
            if text[position] == 113 and text[position + 1] == 105 and text[position + 2] == 100:
                start = position
                if text[position + 3] != 58 or not 48 <= text[position + 4] <= 57:
                    status = BAD_QID
                    break
                position, qid = _whole(text, position + 4, LARGEST_ID)
                if not _ends(text[position]):
                    status, position = BAD_QID, start
                    break
                if qid < 0:
                    status, position = LARGE_QID, start
                    break
                qids[rows] = qid
                present = 1
            if has_qid < 0:
                has_qid, first_row = present, begin
            elif has_qid != present:
                status, position = SOME_QID if present else NO_QID, begin
                break
            before = entries
            last = lowest_index - 1
            while True:
                while _is_blank(text[position]):
                    position += 1
                if text[position] == 10 or text[position] == 35:
                    break
                start = position
                position, index = _whole(text, position, LARGEST_INDEX)
                if position == start or text[position] != 58:
                    status, position = BAD_ENTRY, start
                    break
                if index < 0 or index > highest_index:
                    status, position = LARGE_INDEX, start
                    break
                if index <= last:
                    status = REPEATED_INDEX if index == last else FALLING_INDEX
                    status = LOW_INDEX if index < lowest_index else status
                    position = start
                    break
                end, value, sure = read_number(text, position + 1)
                if end < 0 or not _ends(text[end]):
                    status, position = BAD_VALUE, start
                    break
                indices[entries], values[entries] = index, value
                if not sure:
                    hard_entry[hard], hard_begin[hard], hard_end[hard] = entries, position + 1, end
                    hard += 1
                if entries == before and index < lowest:
                    lowest = index
                entries += 1
                last, position = index, end
            if status != FINE:
                break
            highest = max(highest, last)
            if complete and entries - before != highest_index - lowest_index + 1:
                status, position = INCOMPLETE, begin
                break
            ends[rows] = entries
            rows += 1
        while text[position] != 10:  # what is left is a comment
            position += 1
        position += 1
    return status, position, rows, entries, hard, has_qid, first_row, lowest, highest


@njit(cache=True, nogil=True)
def scatter(ends, indices, values, base, matrix):
    """Write entries into a dense matrix of zeros."""
    entry = 0
    for row in range(len(ends)):
        while entry < ends[row]:
            matrix[row, indices[entry] - base] = values[entry]
            entry += 1
