"""An epoch of the Lagrangian baseline against PyTorch's autograd on explicit pairs."""

import warnings
from functools import partial

import numpy as np
import torch

from benchmarks.tools import best_seconds, biased_table, markdown
from pairity import InterGroup, Queries
from pairity.baselines._linear import StandardFeatures
from pairity.baselines.lagrangian import lagrangian
from pairity.exceptions import TargetNotReachedWarning
from pairity.pairs.enumeration import iter_pairs

TITLE = "An epoch of the Lagrangian method against PyTorch on explicit pairs"
MULTIPLIER = 0.3
FEW, MANY = 4, 8  # epochs; of pairity, 25 times as many
SHAPES = (
    ("web search (as MSLR)", 60_000, 132, 136, False),
    ("long lists", 15_200, 500, 40, False),
    ("students (as the paper's)", 8_160, 480, 5, True),
    ("experts (as TREC)", 20_000, 200, 6, True),
)


def run():
    rows = []
    for shape, n_rows, n_items, n_features, balanced in SHAPES:
        X, y, qid, group = biased_table(n_rows, n_features, n_items)
        if balanced:
            y = _upper_half(X[:, 0] + X[:, 1], n_items)
        queries = Queries.from_arrays(X, y, qid=qid, sensitive_features=group)
        i, j = (np.concatenate(part) for part in zip(*iter_pairs(queries), strict=True))
        Z = X / StandardFeatures.of(queries).scale

        def fit(n_steps):
            method = lagrangian(InterGroup(average="pair"), n_steps=n_steps, raise_slack=0.0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TargetNotReachedWarning)
                return method.fit(queries, 0)  # noqa: B023

        fitted, slow = fit(FEW), []
        for copied in (False, True):
            train = _on_pairs(Z, group, i, j, copied=copied)
            errors, gaps = train(FEW)
            assert np.allclose(errors, fitted.errors)
            assert np.allclose(np.abs(gaps), fitted.violations)
            slow.append(_an_epoch(train, MANY))
        slow.append(best_seconds(_in_batches(Z, group, i, j), 2))
        fast = _an_epoch(fit, 25 * MANY, repeats=9)
        rows.append(
            [
                shape, f"{len(i):,}", n_items, n_features, f"{1000 * fast:.2f}",
                *(f"{seconds / fast:.0f}" for seconds in slow),
            ]
        )  # fmt: skip
    header = [
        "shape", "pairs", "items a query", "features", "an epoch, pairity ms",
        "PyTorch on pairs of scores ÷ pairity", "PyTorch on pairs of features ÷ pairity",
        "in batches of 1,000 ÷ pairity",
    ]  # fmt: skip
    note = (
        "An epoch of training under the inter-group constraint: the gradient of hinge loss and "
        "relaxed constraint, a step of Adam, the true error and gap on all pairs, a step of the "
        f"multipliers. Errors and gaps of the first {FEW} epochs agree. PyTorch gathers scores by "
        "pair or, as the authors' notebooks do, multiplies the features of both items of every "
        "pair; both take all pairs at once, with what does not change prepared beforehand. The "
        "last column is an epoch as people train: shuffled batches of 1,000 pairs of features, a "
        f"step after each, no gaps. Times are the difference of fits of {FEW} epochs and of "
        f"{FEW + MANY} ({FEW + 25 * MANY} for pairity), on two threads."
    )
    return markdown(header, rows) + "\n\n" + note


def _an_epoch(fit, n_steps, repeats=3):
    few, many = (best_seconds(partial(fit, n), repeats) for n in (FEW, FEW + n_steps))
    return (many - few) / n_steps


def _upper_half(merit, n_items):
    """The label of the paper's smaller data sets: above the median of the list."""
    lists = merit.reshape(-1, n_items)
    return (lists > np.median(lists, axis=1, keepdims=True)).ravel()


def _on_pairs(Z, group, i, j, *, copied):
    """The same training on a list of pairs: from a number of steps to errors and gaps."""
    Z = torch.from_numpy(np.ascontiguousarray(Z))
    i, j = torch.from_numpy(i), torch.from_numpy(j)
    first, second = (Z[i], Z[j]) if copied else (None, None)
    group = torch.from_numpy(group)
    down = torch.nonzero((group[i] == 0) & (group[j] == 1))[:, 0]
    up = torch.nonzero((group[i] == 1) & (group[j] == 0))[:, 0]

    def margins(beta):
        if copied:
            return first @ beta - second @ beta
        scores = Z @ beta
        return scores[i] - scores[j]

    def train(n_steps):
        beta = torch.zeros(Z.shape[1], dtype=torch.float64, requires_grad=True)
        adam, multipliers = torch.optim.Adam([beta]), np.zeros(2)
        errors, gaps = np.empty((2, n_steps))
        margin = margins(beta)
        for t in range(n_steps):
            fall = np.sqrt(1.0 + t / 100.0)
            adam.param_groups[0]["lr"] = 0.1 / fall
            force = multipliers[0] - multipliers[1]
            low, high = (margin[up], margin[down]) if force >= 0 else (margin[down], margin[up])
            relaxed = torch.relu(1 - low).mean() + torch.relu(1 + high).mean()
            adam.zero_grad()
            (torch.relu(1 - margin).mean() + abs(force) * relaxed).backward()
            adam.step()
            margin = margins(beta)
            with torch.no_grad():
                errors[t] = 1 - (margin > 0).double().mean()
                gaps[t] = (margin[down] > 0).double().mean() - (margin[up] > 0).double().mean()
            step = 0.03 / fall * np.array([gaps[t], -gaps[t]])
            multipliers = np.maximum(0.0, multipliers + step)
        return errors, gaps

    return train


def _in_batches(Z, group, i, j, size=1000):
    """An epoch in shuffled batches, each with its own gradient and step."""
    Z, order = (
        torch.from_numpy(np.ascontiguousarray(Z)),
        np.random.default_rng(0).permutation(len(i)),
    )
    first, second = (torch.from_numpy(rows[order]) for rows in (i, j))
    across = torch.from_numpy(np.sign(group[j[order]] - group[i[order]]).astype(float))
    beta = torch.zeros(Z.shape[1], dtype=torch.float64, requires_grad=True)
    step = torch.optim.SGD([beta], lr=1e-3)

    def epoch():
        for start in range(0, len(first), size):
            part = slice(start, start + size)
            margin = (Z[first[part]] - Z[second[part]]) @ beta
            relaxed = (across[part].abs() * torch.relu(1 + across[part] * margin)).mean()
            step.zero_grad()
            (torch.relu(1 - margin).mean() + MULTIPLIER * relaxed).backward()
            step.step()

    return epoch
