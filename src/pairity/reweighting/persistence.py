"""load: a saved model from its folder; nothing in it is run."""

from __future__ import annotations

import os
from typing import Any

from pairity._utils.model_folder import read_model
from pairity.exceptions import InputError
from pairity.rankers.adapters import ranker_class
from pairity.reweighting.fair_ranker import FairRanker


def load(path: str | os.PathLike[str], *, module: Any = None) -> Any:
    """A model that `save` wrote: a fitted `FairRanker`, or the ranker that was saved.

    Parameters
    ----------
    path : str or path
        The folder.
    module : torch.nn.Module, optional
        For a PyTorch model, the module as it was made for training: files hold its parameters,
        not its code. It is copied; `fit` would begin with the parameters it has.

    Returns
    -------
    FairRanker or ranker
        Its predictions are those of the saved model, bit for bit. `export_pairs` and `path` need
        the training data again, which is not in the files. What no file can hold (a function as
        constraint, a generator of random numbers, validation data) is missing: such a model
        predicts, and says what to set when it is fitted again.

    Raises
    ------
    ModelFileError
        Where a file is missing, added, changed or cut off, or the manifest is not what this
        version of pairity can read.
    MissingExtraError
        Where the model's engine is not installed.

    Notes
    -----
    Nothing is unpickled, and no code in a file is run. The digests notice accidents; they cannot
    notice somebody who changes a file and its digest, and engines are not built to read files of
    people who wish them ill: load models from whom you trust.

    Examples
    --------
    >>> import tempfile
    >>> import pairity
    >>> from pairity.datasets import make_biased_ranking
    >>> train = make_biased_ranking(50, 20, random_state=0).queries()
    >>> model = pairity.FairRanker().fit(**train)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model")
    ...     loaded = pairity.load(f"{folder}/model")
    >>> bool((loaded.predict(train.X) == model.predict(train.X)).all())
    True
    """
    manifest, files = read_model(path)
    for name in manifest.texts("also") if "also" in manifest.values else ():
        files.pop(name, None)  # a report, say: kept with the model, and no part of it
    entry = manifest.entry("ranker")
    kind = ranker_class(entry)
    if module is not None and not kind.needs_module:
        raise InputError(
            f"module is for PyTorch models, and {str(path)!r} holds a {kind.__name__}. Leave it "
            "out."
        )
    if "model" not in manifest.values:
        return kind.from_files(entry, files, module)
    model = manifest.entry("model")
    if model.text("class") != "FairRanker":
        raise model.refuse("class", "another than FairRanker")
    return FairRanker.from_files(manifest, files, module)
