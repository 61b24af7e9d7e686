"""TorchRanker: a PyTorch module that scores items, trained on weighted pairs."""

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from pairity._utils.extras import import_extra
from pairity._utils.json_codec import Entry, to_plain
from pairity._utils.typing import Array
from pairity._utils.validation import require_count, require_number, show
from pairity.data.features import Features
from pairity.data.queries import Queries
from pairity.exceptions import InputError, ModelFileError
from pairity.pairs.losses import as_loss
from pairity.rankers._engines import draw_seed, unreadable
from pairity.rankers._estimators import PairRanker
from pairity.rankers._torch_training import Trainer, Weighted, as_device, dtype_of, moments, predict

_OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}


class TorchRanker(PairRanker):
    r"""A PyTorch module that scores items, trained on weighted pairs.

    .. math::

        \min_\theta \;
        \frac{\sum W_{g_i g_j} L(s_\theta(x_i) - s_\theta(x_j))}{\sum W_{g_i g_j}}

    over the preference pairs (i, j). pairity's kernels compute the gradient in the scores, and the
    module's own backward pass does the rest. Pairs are never stored.

    Parameters
    ----------
    estimator : torch.nn.Module
        Maps features of shape (n_items, n_features) to scores of shape (n_items,) or (n_items, 1).
        The score of an item must depend on its own features only. The module is copied and not
        changed; every fit starts with its parameters.
    loss : {"logistic", "lambdarank", "hinge", "bpr"} or Loss, default="logistic"
        The loss L of a pair; see `pairity.pairs.losses`.
    optimizer : {"adam", "adamw", "sgd"} or callable, default="adam"
        A callable receives the module's parameters and returns a torch optimizer, which sets its
        own learning rate and weight decay.
    learning_rate : float, default=0.01
        The initial learning rate; see `decay`.
    weight_decay : float, default=0.0
    epochs : int, default=50
        Passes over the training queries.
    batch_queries : int, "auto" or None, default="auto"
        Queries per step; a query is never cut. "auto" means up to 32, and fewer if an epoch would
        have less than 20 steps. None means all queries in one step.
    decay : bool, default=True
        Whether the learning rate falls linearly to zero over the epochs, so that the result does
        not depend on which queries came last.
    validation : float, optional
        The share of queries to hold out. The parameters of the epoch with the lowest loss on them
        are returned. By default, all queries are used for training and the last parameters are
        returned.
    patience : int or None, default=None
        Training stops after this many consecutive epochs without a lower loss, on the held-out
        queries if there are any, otherwise in training. None runs all epochs.
    warm_start : bool, default=False
        Whether a later round of `FairRanker` starts with the parameters of the previous round
        instead of those of `estimator`.
    standardise : bool, default=True
        Whether to add a first layer that scales every feature to mean 0 and variance 1 on the
        training items.
    device : str or torch.device, default="cpu"
        Where to train; "auto" means a CUDA device if there is one.
    random_state : int, RandomState instance or None
        Determines the batches, the held-out queries and everything that the module draws, such as
        dropout. With None, a seed is drawn in the first round and used in the later ones.

    Attributes
    ----------
    model_ : torch.nn.Module
        The trained copy, on the CPU and in eval mode, which predicts on raw features without
        pairity. With `standardise` it is ``Sequential(BatchNorm1d, module)``, and the first layer
        has the statistics of the training data.
    loss_curve_ : list of float
        The mean loss in the training steps of each epoch; empty for a loss without a value.
    validation_curve_ : list of float
        The mean loss on the held-out queries after each epoch; empty without them.
    n_epochs_ : int
    best_epoch_ : int, the epoch, from 1, whose parameters are in `model_`
    n_features_in_ : int

    Notes
    -----
    The gradient of a step is that of its queries' share of the mean loss, times the number of
    steps in an epoch. An epoch therefore counts every pair with its weight, and scaling all weights
    changes nothing. Queries without a pair are left out. The fit restores torch's random state and
    changes no other global state.

    Examples
    --------
    >>> import torch
    >>> from pairity.datasets import make_biased_ranking
    >>> from pairity.rankers import TorchRanker
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
        """Train on weighted pairs; see `pairity.rankers.Ranker`."""
        torch = import_extra("torch", "TorchRanker", "torch")
        self._check_parameters(torch)
        self._begin_fit(queries)
        device, seed = as_device(torch, self.device), self._draw_seed(previous)
        train, others = queries.by_query()[0], None
        if self.validation is not None:
            train, others = train.split(self.validation, seed)
        data = Weighted.of(train, weights, "training")
        held_out = None if others is None else Weighted.of(others, weights, "held-out")
        # torch is seeded inside the block, and its random state is restored afterwards.
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            module = self._start(torch, data.queries.X, previous).to(device)
            trainer = Trainer(torch, module, self, data, held_out, device)
            trainer.score_one_query("Before")
            trainer.run(self._make_optimizer(torch, module), np.random.RandomState(seed))
            trainer.score_one_query("After")
        module.zero_grad(set_to_none=True)
        self.model_ = module.to("cpu").eval()
        self.loss_curve_, self.validation_curve_ = trainer.loss_curve, trainer.validation_curve
        self.n_epochs_, self.best_epoch_ = trainer.n_epochs, trainer.best_epoch
        self._seed = seed
        return self

    def _scores(self, features: Any) -> Array:
        torch = import_extra("torch", "TorchRanker", "torch")
        return predict(torch, self.model_, features, torch.device("cpu"))

    def _encode_settings(self) -> dict[str, Any]:
        return {**super()._encode_settings(), "device": str(self.device)}

    @classmethod
    def from_settings(cls, entry: Entry, files: Mapping[str, bytes], module: Any = None) -> Self:
        """Return the ranker, not fitted, around the caller's module."""
        torch = import_extra("torch", "TorchRanker", "torch")
        if module is None or isinstance(module, type) or not isinstance(module, torch.nn.Module):
            stored = entry.setting("estimator")
            passed = "" if module is None else f" module is {show(module)}."
            raise ModelFileError(
                "The file contains the parameters of a PyTorch module, not its code (it was "
                f"{getattr(stored, 'what', show(stored))}).{passed} Construct the module as for "
                "training and pass it: load(path, module=my_module)."
            )
        ranker = super().from_settings(entry, files, module)
        ranker.estimator = module
        return ranker

    def _to_native(self) -> tuple[dict[str, Any], bytes]:
        torch = import_extra("torch", "TorchRanker", "torch")
        tensors = import_extra("safetensors.torch", "A saved PyTorch module", "torch")
        parameters = self.model_.state_dict()
        for name, tensor in parameters.items():
            if not isinstance(tensor, torch.Tensor):
                raise ModelFileError(
                    f"{name!r} in the module's state_dict() is {show(tensor)}, not a tensor, and "
                    "cannot be saved. Save model_ yourself."
                )
        try:
            data: bytes = tensors.save({k: v.detach().cpu().clone() for k, v in parameters.items()})
        except Exception as error:
            raise ModelFileError(
                f"safetensors cannot save the module's parameters ({error}). Save model_ yourself."
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
        torch = import_extra("torch", "TorchRanker", "torch")
        tensors = import_extra("safetensors.torch", "A saved PyTorch module", "torch")
        try:
            parameters = tensors.load(data)
        except Exception as error:
            raise unreadable(self.file_name, error) from error
        module = self._copy_module(torch, self.n_features_in_)
        _set_parameters(module, parameters)
        self.model_ = module.to("cpu").eval()
        self._seed = state.count("seed")
        self.n_epochs_, self.best_epoch_ = state.count("n_epochs"), state.count("best_epoch")
        self.loss_curve_ = state.array("loss_curve").tolist()
        self.validation_curve_ = state.array("validation_curve").tolist()

    def _copy_module(self, torch: Any, n_features: int) -> Any:
        """Return a copy of the module, with a standardising first layer if requested."""
        module = copy.deepcopy(self.estimator)
        if not self.standardise:
            return module
        kind = dtype_of(torch, module)
        layer = torch.nn.BatchNorm1d(n_features, eps=0.0, affine=False, dtype=kind)
        return torch.nn.Sequential(layer, module)

    def _start(self, torch: Any, X: Features, previous: Any) -> Any:
        """Return the module to train; a standardising layer has the statistics of X."""
        if self.warm_start and hasattr(previous, "model_"):
            return copy.deepcopy(previous.model_)
        module = self._copy_module(torch, X.shape[1])
        if self.standardise:
            mean, variance = moments(X)
            module[0].running_mean.copy_(torch.from_numpy(mean))
            module[0].running_var.copy_(torch.from_numpy(variance))
        return module

    def _make_optimizer(self, torch: Any, module: Any) -> Any:
        parameters = [tensor for tensor in module.parameters() if tensor.requires_grad]
        if callable(self.optimizer):
            return self.optimizer(parameters)
        kind = getattr(torch.optim, _OPTIMIZERS[self.optimizer])
        return kind(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)

    def _draw_seed(self, previous: Any) -> int:
        if self.random_state is None and hasattr(previous, "_seed"):
            return int(previous._seed)
        return draw_seed(self.random_state)

    def _check_parameters(self, torch: Any) -> None:
        if isinstance(self.estimator, type) or not isinstance(self.estimator, torch.nn.Module):
            raise InputError(
                f"estimator is {show(self.estimator)}. Pass a torch.nn.Module that maps features "
                "to scores, such as torch.nn.Linear(n_features, 1)."
            )
        if not any(tensor.requires_grad for tensor in self.estimator.parameters()):
            raise InputError(
                "The module has no parameter that can be trained. Pass a module with parameters "
                "that have requires_grad=True."
            )
        if self.standardise and any(
            isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag))
            for part in self.estimator.modules()
        ):
            raise InputError(
                "The module looks up embeddings, whose indices must not be standardised. Use "
                "TorchRanker(module, standardise=False), and scale the other columns yourself."
            )
        if not callable(self.optimizer) and self.optimizer not in _OPTIMIZERS:
            raise InputError(
                f"optimizer must be {', '.join(map(repr, _OPTIMIZERS))} or a function of the "
                f"parameters (got {show(self.optimizer)}). An example of a function is "
                "lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)."
            )
        require_number(self.learning_rate, "learning_rate", positive=True)
        require_number(self.weight_decay, "weight_decay")
        require_count(self.epochs, "epochs")
        if self.batch_queries not in (None, "auto"):
            require_count(self.batch_queries, "batch_queries")
        if self.patience is not None:
            require_count(self.patience, "patience")
        compares_losses = self.patience is not None or self.validation is not None
        if compares_losses and not hasattr(as_loss(self.loss), "value"):
            raise InputError(
                f"{as_loss(self.loss)!r} has no value, which validation and patience need. Remove "
                "them, or choose another loss."
            )


def _set_parameters(module: Any, saved: dict[str, Any]) -> None:
    """Give a module the saved parameters, or refuse a module that they do not fit."""
    try:
        module.load_state_dict(saved)  # which refuses other names and shapes, and casts other types
        for name, own in module.state_dict().items():
            if own.dtype != saved[name].dtype:
                types = f"{own.dtype} in the module and {saved[name].dtype} in the file"
                raise ValueError(f"{name!r} is {types}")
    except Exception as error:
        raise ModelFileError(
            f"The module is not the one that was saved: {' '.join(str(error).split())} Construct "
            "it as for training, and pass it: load(path, module=my_module)."
        ) from error
