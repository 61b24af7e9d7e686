"""An epoch of the Lagrangian method against PyTorch's autograd on explicit pairs."""

from functools import partial

import numpy as np
import torch

from benchmarks.tools import best_seconds, biased_table, markdown
from pairity import InterGroup, Queries
from pairity.baselines._linear import StandardFeatures
from pairity.baselines.proxy_lagrangian import _Proxy
from pairity.pairs import iter_pairs
from pairity.rankers._products import one_blas_thread

TITLE = "An epoch of the Lagrangian method against PyTorch on explicit pairs"
MULTIPLIER = 0.3
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
        features = StandardFeatures.of(queries)
        proxy = _Proxy(queries, InterGroup(average="pair"))
        multipliers = np.array([[MULTIPLIER], [0.0]])
        beta = np.random.default_rng(0).normal(size=n_features) / np.sqrt(n_features)

        def ours(measured):
            with one_blas_thread:
                scores = features.scores(beta)  # noqa: B023
                gradient = features.of_scores(proxy.gradient(scores, multipliers))  # noqa: B023
                return gradient, proxy.measure(scores) if measured else None  # noqa: B023

        i, j = (np.concatenate(part) for part in zip(*iter_pairs(queries), strict=True))
        gathered = _on_pairs(X / features.scale, group, i, j, beta, copied=False)
        copied = _on_pairs(X / features.scale, group, i, j, beta, copied=True)
        gradient, (error, gaps) = ours(True)
        for theirs in (gathered, copied):
            other, measured = theirs(True)
            assert np.allclose(gradient, other)
            assert np.allclose([error, gaps[0]], measured)
        row = [shape, f"{len(i):,}", n_items, n_features]
        for measured in (False, True):
            fast, slow, slower = (
                best_seconds(partial(each, measured), 9) for each in (ours, gathered, copied)
            )
            row += [f"{1000 * fast:.2f}", f"{slow / fast:.0f}", f"{slower / fast:.0f}"]
        batches = best_seconds(_in_batches(X / features.scale, group, i, j, beta), 2)
        rows.append([*row, f"{batches / fast:.0f}"])
    header = [
        "shape", "pairs", "items a query", "features", "gradient, ours ms", "PyTorch ÷ ours",
        "on pairs of features ÷ ours", "with true gaps, ours ms", "PyTorch ÷ ours",
        "on pairs of features ÷ ours", "in batches of 1,000 ÷ ours",
    ]  # fmt: skip
    note = (
        "One gradient of the hinge loss and the relaxed inter-group constraint in the "
        "coefficients, without and with the true error and gap that the multipliers follow; the "
        "numbers agree. PyTorch gathers scores by pair or, as the authors' notebooks do, "
        "multiplies the features of both items of every pair; both take all pairs at once. The "
        "last column is an epoch as people train: shuffled batches of 1,000 pairs of features, a "
        "step after each, against ours with true gaps. Each version is timed by itself, epoch "
        "after epoch, on two threads. PyTorch's time grows with pairs × features, ours with "
        "items × features and with pairs: we gain most where both are many."
    )
    return markdown(header, rows) + "\n\n" + note


def _upper_half(merit, n_items):
    """The label of the paper's smaller data sets: above the median of the list."""
    lists = merit.reshape(-1, n_items)
    return (lists > np.median(lists, axis=1, keepdims=True)).ravel()


def _on_pairs(Z, group, i, j, beta, *, copied):
    """The same epoch on a list of pairs, all that does not change prepared beforehand."""
    Z = torch.from_numpy(np.ascontiguousarray(Z))
    i, j = torch.from_numpy(i), torch.from_numpy(j)
    first, second = (Z[i], Z[j]) if copied else (None, None)
    group = torch.from_numpy(group)
    down = torch.nonzero((group[i] == 0) & (group[j] == 1))[:, 0]
    up = torch.nonzero((group[i] == 1) & (group[j] == 0))[:, 0]
    beta = torch.from_numpy(beta.copy()).requires_grad_()

    def epoch(measured):
        beta.grad = None
        scores = None if copied else Z @ beta
        margin = first @ beta - second @ beta if copied else scores[i] - scores[j]
        low, high = margin[up], margin[down]
        loss = torch.relu(1 - margin).mean()
        relaxed = torch.relu(1 - low).mean() + torch.relu(1 + high).mean()
        (loss + MULTIPLIER * relaxed).backward()
        if not measured:
            return beta.grad.numpy(), None
        with torch.no_grad():
            error = 1 - (margin > 0).double().mean()
            gap = (high > 0).double().mean() - (low > 0).double().mean()
        return beta.grad.numpy().copy(), (float(error), float(gap))

    return epoch


def _in_batches(Z, group, i, j, beta, size=1000):
    """An epoch in shuffled batches, each with its own gradient and step."""
    Z, order = (
        torch.from_numpy(np.ascontiguousarray(Z)),
        np.random.default_rng(0).permutation(len(i)),
    )
    first, second = (torch.from_numpy(each[order]) for each in (i, j))
    across = torch.from_numpy(np.sign(group[j[order]] - group[i[order]]).astype(float))
    beta = torch.from_numpy(beta.copy()).requires_grad_()
    step = torch.optim.SGD([beta], lr=1e-3)

    def epoch():
        for at in range(0, len(first), size):
            part = slice(at, at + size)
            margin = (Z[first[part]] - Z[second[part]]) @ beta
            relaxed = (across[part].abs() * torch.relu(1 + across[part] * margin)).mean()
            step.zero_grad()
            (torch.relu(1 - margin).mean() + MULTIPLIER * relaxed).backward()
            step.step()

    return epoch
