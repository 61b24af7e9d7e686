"""TorchRanker: any PyTorch module that scores items, trained on weighted pairs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from pairity._utils.json_codec import Entry, to_plain
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.features import Features
from pairity.data.queries import Queries
from pairity.exceptions import InputError, ModelFileError
from pairity.pairs.losses import as_loss
from pairity.rankers._engines import import_engine, unreadable
from pairity.rankers._estimators import PairRanker, require_trainable
from pairity.rankers._torch_training import (
    Trainer,
    Weighted,
    dtype_of,
    find_device,
    moments,
    own_randomness,
    predict,
)

_OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}


class TorchRanker(PairRanker):
    r"""A PyTorch module that scores items, trained on weighted pairs.

    .. math::

        \min_\theta \;
        \frac{\sum W_{g_i g_j} L(s_\theta(x_i) - s_\theta(x_j))}{\sum W_{g_i g_j}}

    over the preference pairs (i, j). The gradient in the scores comes from the same kernels as
    everywhere else in pairity, and the module's own backward pass does the rest: no pair is ever
    stored.

    Parameters
    ----------
    estimator : torch.nn.Module
        Maps features of shape (n_items, n_features) to scores of shape (n_items,) or (n_items, 1),
        each item's by its own features. It is copied and not changed: every fit begins with the
        parameters it has.
    loss : {"logistic", "lambdarank", "hinge", "bpr"} or Loss, default="logistic"
        The loss L of a pair; see `pairity.pairs.losses`.
    optimizer : {"adam", "adamw", "sgd"} or callable, default="adam"
        A callable is given the module's parameters and returns a torch optimizer; learning rate
        and weight decay are then its own.
    learning_rate : float, default=0.01
        At first; see `decay`.
    weight_decay : float, default=0.0
    epochs : int, default=50
        Passes over the training queries.
    batch_queries : int, "auto" or None, default="auto"
        Queries per step, never cut: "auto" takes up to 32, and fewer where an epoch would have
        less than 20 steps; None takes all at once.
    decay : bool, default=True
        Whether the learning rate falls evenly to zero over the epochs, so that the end of the
        training does not depend on which queries came last.
    validation : float, optional
        A share of the queries to hold out; the parameters of the epoch with the lowest loss on
        them are kept. By default every query is trained on, and the last parameters are kept.
    patience : int or None, default=None
        Epochs in a row without a lower loss, on the held-out queries where there are any, else in
        training, after which to stop. None runs all epochs.
    warm_start : bool, default=False
        Whether a later round of `FairRanker` begins with the parameters of the round before,
        rather than with those of `estimator`.
    standardise : bool, default=True
        Whether to put a layer in front that brings every feature to mean 0 and variance 1 on the
        training items.
    device : str or torch.device, default="cpu"
        Where to train; "auto" takes a CUDA device where there is one.
    random_state : int, RandomState instance or None
        Draws the batches, the held-out queries and whatever the module draws, such as dropout.
        With None a seed is drawn in the first round and kept for the later ones.

    Attributes
    ----------
    model_ : torch.nn.Module
        The trained copy, on the CPU and in eval mode, which predicts by itself on raw features.
        With `standardise` it is ``Sequential(BatchNorm1d, module)``, the first layer's statistics
        being those of the training data.
    loss_curve_ : list of float
        The mean loss in each epoch's training steps; empty for a loss that has no value.
    validation_curve_ : list of float
        The mean loss on the held-out queries after each epoch; empty without them.
    n_epochs_ : int
    best_epoch_ : int, the epoch, from 1, whose parameters were kept
    n_features_in_ : int

    Notes
    -----
    A step's gradient is that of its queries' share in the mean loss, times the number of steps in
    an epoch: the steps of an epoch together count every pair by its weight, and scaling all
    weights changes nothing. Queries without a pair are left out. Torch's random state is the
    caller's again when the fit ends, and nothing else global is touched.

    Examples
    --------
    >>> import torch
    >>> from pairity.datasets import make_biased_ranking
    >>> from pairity.rankers.torch import TorchRanker
    >>> data = make_biased_ranking(20, 30, random_state=0)
    >>> net = torch.nn.Sequential(
    ...     torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
    ... )
    >>> ranker = TorchRanker(net, random_state=0).fit(data.X, data.y, qid=data.qid)
    >>> ranker.predict(data.X).shape
    (600,)
    """

    file_name = "ranker.safetensors"
    needs_module = True
    libraries = ("torch", "safetensors")

    def __init__(
        self,
        estimator: Any,
        *,
        loss: Any = "logistic",
        optimizer: Any = "adam",
        learning_rate: float = 0.01,
        weight_decay: float = 0.0,
        epochs: int = 50,
        batch_queries: Any = "auto",
        decay: bool = True,
        validation: float | None = None,
        patience: int | None = None,
        warm_start: bool = False,
        standardise: bool = True,
        device: Any = "cpu",
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.loss = loss
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.epochs = epochs
        self.batch_queries = batch_queries
        self.decay = decay
        self.validation = validation
        self.patience = patience
        self.warm_start = warm_start
        self.standardise = standardise
        self.device = device
        self.random_state = random_state

    def fit_pairs(  # type: ignore[override]
        self, queries: Queries, weights: Array, *, previous: Any = None
    ) -> Self:
        """Train on weighted pairs; see `pairity.rankers.base.Ranker`."""
        torch = import_engine("torch", "TorchRanker")
        self._check_parameters(torch)
        require_trainable(queries)
        loss, device = as_loss(self.loss), find_device(torch, self.device)
        seed = self._draw_seed(previous)
        train, held = queries.by_query()[0], None
        if self.validation is not None:
            train, held = train.split(self.validation, seed)
        data = Weighted.of(train, weights, "training")
        held_out = None if held is None else Weighted.of(held, weights, "held-out")
        with own_randomness(torch, seed, device):
            module = self._start(torch, data.queries.X, previous).to(device)
            trainer = Trainer(torch, module, loss, data, held_out, device)
            trainer.score_one_query("Before")
            trainer.run(
                self._make_optimizer(torch, module), int(self.epochs), self.batch_queries,
                bool(self.decay), self.patience, bool(self.standardise),
                np.random.RandomState(seed),
            )  # fmt: skip
            trainer.score_one_query("After")
        module.zero_grad(set_to_none=True)
        self.model_ = module.to("cpu").eval()
        self.loss_curve_ = trainer.loss_curve
        self.validation_curve_ = trainer.validation_curve
        self.n_epochs_ = trainer.n_epochs
        self.best_epoch_ = trainer.best_epoch
        self.n_features_in_ = int(queries.X.shape[1])
        self._seed = seed
        return self

    def _scores(self, features: Any) -> Array:
        torch = import_engine("torch", "TorchRanker")
        return predict(torch, self.model_, features, torch.device("cpu"))

    def _encode_settings(self) -> dict[str, Any]:
        settings = super()._encode_settings()
        if not isinstance(self.device, str):
            settings["device"] = str(self.device)
        return settings

    @classmethod
    def from_settings(cls, entry: Entry, files: Mapping[str, bytes], module: Any = None) -> Self:
        """The ranker, not fitted, around the caller's module."""
        torch = import_engine("torch", "TorchRanker")
        if module is None or isinstance(module, type) or not isinstance(module, torch.nn.Module):
            was = entry.setting("estimator")
            given = "" if module is None else f" module is {show(module)}."
            raise ModelFileError(
                "A file holds the parameters of a PyTorch module, not its code (it was "
                f"{getattr(was, 'what', show(was))}).{given} Make the module as it was made for "
                "training and hand it in: load(path, module=my_module)."
            )
        ranker = super().from_settings(entry, files, module)
        ranker.estimator = module
        return ranker

    def _to_native(self) -> tuple[dict[str, Any], bytes]:
        torch = import_engine("torch", "TorchRanker")
        tensors = import_engine("safetensors.torch", "A saved PyTorch module", extra="torch")
        held = self.model_.state_dict()
        for name, tensor in held.items():
            if not isinstance(tensor, torch.Tensor):
                raise ModelFileError(
                    f"{name!r} in the module's state_dict() is no tensor but {show(tensor)}, which "
                    "is not saved. Save model_ by yourself."
                )
        try:
            data: bytes = tensors.save({k: v.detach().cpu().clone() for k, v in held.items()})
        except Exception as error:
            raise ModelFileError(
                f"safetensors cannot save the module's parameters ({error}). Save model_ by "
                "yourself."
            ) from error
        state = {
            "seed": int(self._seed),
            "n_epochs": int(self.n_epochs_),
            "best_epoch": int(self.best_epoch_),
            "loss_curve": to_plain(self.loss_curve_),
            "validation_curve": to_plain(self.validation_curve_),
        }
        return state, data

    def _from_native(self, state: Entry, data: bytes) -> None:
        torch = import_engine("torch", "TorchRanker")
        tensors = import_engine("safetensors.torch", "A saved PyTorch module", extra="torch")
        try:
            held = tensors.load(data)
        except Exception as error:
            raise unreadable(self.file_name, error) from error
        module = copy.deepcopy(self.estimator)
        if self.standardise:
            layer = _standardiser(torch, self.n_features_in_, module)
            module = torch.nn.Sequential(layer, module)
        _set_parameters(module, held)
        self.model_ = module.to("cpu").eval()
        self._seed = state.count("seed")
        self.n_epochs_, self.best_epoch_ = state.count("n_epochs"), state.count("best_epoch")
        self.loss_curve_ = state.array("loss_curve").tolist()
        self.validation_curve_ = state.array("validation_curve").tolist()

    def _start(self, torch: Any, X: Features, previous: Any) -> Any:
        """A copy of the module, with a layer that standardises in front where that is wanted."""
        if self.warm_start and hasattr(previous, "model_"):
            return copy.deepcopy(previous.model_)
        module = copy.deepcopy(self.estimator)
        if not self.standardise:
            return module
        mean, variance = moments(X)
        layer = _standardiser(torch, X.shape[1], module)
        layer.running_mean.copy_(torch.from_numpy(mean))
        layer.running_var.copy_(torch.from_numpy(variance))
        return torch.nn.Sequential(layer, module)

    def _make_optimizer(self, torch: Any, module: Any) -> Any:
        parameters = [each for each in module.parameters() if each.requires_grad]
        if callable(self.optimizer):
            return self.optimizer(parameters)
        kind = getattr(torch.optim, _OPTIMIZERS[self.optimizer])
        return kind(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)

    def _draw_seed(self, previous: Any) -> int:
        if self.random_state is None and hasattr(previous, "_seed"):
            return int(previous._seed)
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _check_parameters(self, torch: Any) -> None:
        if isinstance(self.estimator, type) or not isinstance(self.estimator, torch.nn.Module):
            raise InputError(
                f"estimator is {show(self.estimator)}. Pass a torch.nn.Module that maps features "
                "to scores, such as torch.nn.Linear(n_features, 1)."
            )
        if not any(each.requires_grad for each in self.estimator.parameters()):
            raise InputError(
                "The module has no parameter that can be trained. Give one whose parameters have "
                "requires_grad=True."
            )
        if self.standardise and any(
            isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag))
            for part in self.estimator.modules()
        ):
            raise InputError(
                "The module looks up embeddings, whose numbers must not be standardised. Give "
                "TorchRanker(module, standardise=False), and scale the other columns yourself."
            )
        if not callable(self.optimizer) and self.optimizer not in _OPTIMIZERS:
            raise InputError(
                f"optimizer is {show(self.optimizer)}. Choose {', '.join(map(repr, _OPTIMIZERS))}, "
                "or give a function of the parameters, such as "
                "lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)."
            )
        _require_number(self.learning_rate, "learning_rate", above=0.0)
        _require_number(self.weight_decay, "weight_decay", least=0.0)
        _require_whole(self.epochs, "epochs")
        if self.batch_queries not in (None, "auto"):
            _require_whole(self.batch_queries, "batch_queries")
        if self.patience is not None:
            _require_whole(self.patience, "patience")
        watched = self.patience is not None or self.validation is not None
        if watched and not hasattr(as_loss(self.loss), "value"):
            raise InputError(
                f"{as_loss(self.loss)!r} has no value that could be watched. Leave out validation "
                "and patience, or choose another loss."
            )
        try:
            check_random_state(self.random_state)
        except ValueError as error:
            raise InputError(
                f"random_state is {show(self.random_state)}; give a whole number, a NumPy "
                "RandomState or None."
            ) from error


def _standardiser(torch: Any, n_features: int, module: Any) -> Any:
    return torch.nn.BatchNorm1d(n_features, eps=0.0, affine=False, dtype=dtype_of(torch, module))


def _set_parameters(module: Any, held: dict[str, Any]) -> None:
    """Give a module the parameters that were saved, where it is the one they are of."""
    own, wrong = module.state_dict(), ""
    for name in sorted(own.keys() ^ held.keys()):
        there = "the file" if name in held else "the module"
        wrong = wrong or f"only {there} has {show(name)}"
    for name in sorted(own.keys() & held.keys()):
        here, saved = (
            f"{tuple(getattr(tensor, 'shape', ()))} {getattr(tensor, 'dtype', None)}"
            for tensor in (own[name], held[name])
        )
        if here != saved:
            wrong = wrong or f"{name!r} is {here} in the module and {saved} in the file"
    try:
        if not wrong:
            module.load_state_dict(held)
    except Exception as error:
        wrong = str(error)
    if wrong:
        raise ModelFileError(
            f"The module is not the one that was saved: {wrong}. Make it as it was made for "
            "training, and hand it in: load(path, module=my_module)."
        )


def _require_number(value: Any, name: str, *, least: float = 0.0, above: float = -1.0) -> None:
    number = np.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if not (least <= number < np.inf and number > above):
        bound = "above 0" if above >= 0 else "of 0 or more"
        raise InputError(f"{name} is {show(value)}; give a number {bound}.")


def _require_whole(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise InputError(f"{name} is {show(value)}; give a whole number of at least 1.")
