r"""The pairwise logistic loss of one long list in nearly linear time.

A list of n items has up to n(n-1)/2 pairs. Short lists are fastest by visiting all pairs; this
module is for lists of more than about a thousand items. Every result is a sum over pairs of a
smooth function of the score difference :math:`d = s_i - s_j`, and such sums can be computed from a
few *moments* instead of pair by pair.

**Boxes.** The score axis is cut into boxes of width 2, on a grid through zero. An item is a box and
a place :math:`x \in [-1, 1]` in it. The moments of a box are :math:`M_m = \sum_i u_i x_i^m`, one
set for each group.

**One potential.** Let :math:`\ell(d) = \log(1 + e^{-d})`, so that :math:`t = -\ell'(d)` and
:math:`h = \ell''(d)`. A source at score y adds at the score x

.. math:: \ell(x - y) = \max(y - x, 0) + \log(1 + e^{-|x - y|}).

The first part is linear and summed exactly, by running sums over the boxes; y counts as above x if
its box is. Of the rest we keep, in each box, the derivative :math:`\psi` as a polynomial in x. It
is :math:`-t` for sources in the same box or below and :math:`1 - t` for sources above, so large
numbers do not cancel, and tiny derivatives keep their relative accuracy. The
Hessian is :math:`\psi'` and the loss is :math:`\psi` integrated: one polynomial yields all three.
(The tables are built in reverse: h is interpolated at Chebyshev points and integrated, because
integrating a polynomial loses no accuracy, while differentiating it does.)

**Near and far.** Sources at most two boxes away act through a small matrix which depends only on
the offset of the boxes. Beyond that :math:`|d| \ge 4` and a few terms of

.. math:: t = e^{-d} - e^{-2d} + e^{-3d} - \cdots

are enough. Each term is a running sum that decays by a factor from box to box. Only boxes that hold
items are visited, so neither the cost nor the accuracy depends on how far the scores spread.

**Labels.** The list, sorted by label, is cut into chunks that hold either one label or few items.
One sweep, from the last chunk to the first, adds up moments, so that each chunk meets all items
with lower labels at once; a second, from the first to the last, meets those with higher labels.
Pairs within a chunk are visited one by one. The length of chunks balances the two kinds of
work. Where boxes are nearly as many as items, a chunk may be cut again by the same rule.

With 18 terms, single pairs have relative errors of at most 5e-14 (t) and 7e-13 (h).
"""

from pairity.pairs.kernels.long_lists.lists import hessian_product_long, logistic_long

__all__ = ["hessian_product_long", "logistic_long"]
