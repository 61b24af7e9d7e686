"""Checkpoint: the completed rounds of a fit, in a folder from which the fit can be resumed.

A resumed fit repeats the completed rounds without training: the solver receives the recorded
results, and continues where the fit was interrupted, on this machine or on another.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pairity._utils.files import atomic_write
from pairity._utils.json_codec import Place, from_plain, parse_document, to_plain
from pairity._utils.model_folder import read_model
from pairity._utils.typing import Array
from pairity.exceptions import InputError
from pairity.rankers.adapters import ranker_class
from pairity.reweighting.algorithm import Round

FORMAT = "pairity checkpoint"
FILE = "rounds.json"
_REMEDY = "Remove the folder to start again, or pass another folder."


@dataclass(frozen=True)
class _Content:
    """The content of ``rounds.json``."""

    settings: dict[str, Any]
    rounds: tuple[Round, ...]


class Checkpoint:
    """A folder with ``rounds.json`` and the ranker of each completed round.

    Parameters
    ----------
    folder : str or path
        The folder is created if it does not exist.
    settings : mapping from name to JSON
        Everything that the rounds depend on, data included. A folder with the rounds of a fit with
        other settings is refused.
    n_groups : int
    ranker : the ranker that is fitted; it is not changed
    n_folds : int, how many rankers a round has, if they are measured out of fold
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        settings: Mapping[str, Any],
        n_groups: int,
        ranker: Any,
        n_folds: int = 0,
    ) -> None:
        if not getattr(ranker, "file_name", ""):
            raise InputError(
                f"checkpoint saves the ranker of every round, but pairity cannot save a "
                f"{type(ranker).__name__}. Leave checkpoint out."
            )
        self.folder, self.settings = Path(folder), json.loads(json.dumps(dict(settings)))
        self.n_folds = n_folds
        self.module = getattr(ranker, "estimator", None)
        self.rounds: list[Round] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            names = sorted(path.name for path in self.folder.iterdir())
            if FILE in names:
                self._read(self.folder / FILE, n_groups)
        except OSError as error:
            raise InputError(
                f"checkpoint={str(folder)!r} is not a folder that can be used: {error.strerror}."
            ) from error
        if FILE not in names and any(not name.startswith((".", "round-")) for name in names):
            raise InputError(
                f"checkpoint={str(folder)!r} contains other files, such as {names[0]!r}, and no "
                "checkpoint. Pass a folder that is used for nothing else."
            )

    def recall(self, number: int, lambda_: Array | None) -> tuple[Round, Any] | None:
        """Return a completed round and its ranker, or None.

        Parameters
        ----------
        number : int
        lambda_ : array or None
            The multipliers that this fit would use, where they are known beforehand.
        """
        completed = next((entry for entry in self.rounds if entry.number == number), None)
        if completed is None:
            return None
        # A resumed fit may sum in another order (threads, workers): allow for rounding.
        if lambda_ is not None and not np.allclose(completed.lambda_, lambda_, 1e-6, 1e-9):
            raise InputError(
                f"Round {number} of the checkpoint in {str(self.folder)!r} was trained with other "
                "multipliers than this fit computes, so it is from another version of pairity or "
                f"from other data. {_REMEDY}"
            )
        if self._folder(number).exists():
            return completed, self._load(self._folder(number))
        models = [self._load(folder) for folder in self._folds(number) if folder.exists()]
        return completed, tuple(models)

    def _load(self, folder: Path) -> Any:
        manifest, files = read_model(folder)
        entry = manifest.entry("ranker")
        return ranker_class(entry).from_files(entry, files, self.module)

    def keep(self, completed: Round, model: Any) -> None:
        """Write a round and its ranker, or those of its folds, completely or not at all."""
        if isinstance(model, tuple):
            for ranker, folder in zip(model, self._folds(completed.number), strict=False):
                ranker.save(folder)
        else:
            model.save(self._folder(completed.number))
        self.rounds.append(completed)
        content = {"format": FORMAT, **to_plain(_Content(self.settings, tuple(self.rounds)))}
        with atomic_write(self.folder / FILE) as file:
            file.write(json.dumps(content, indent=1, allow_nan=False).encode())

    def _folder(self, number: int) -> Path:
        return self.folder / f"round-{number}"

    def _folds(self, number: int) -> Iterator[Path]:
        return (self.folder / f"round-{number}-fold-{fold}" for fold in range(self.n_folds))

    def _read(self, path: Path, n_groups: int) -> None:
        place = Place(f"checkpoint {str(path)!r}", _REMEDY)
        content = from_plain(_Content, parse_document(path.read_bytes(), FORMAT, place), place)
        for name in {**self.settings, **content.settings}:
            saved, current = content.settings.get(name), self.settings.get(name)
            if saved != current:
                raise InputError(
                    f"The checkpoint in {str(self.folder)!r} is from another fit: {name} was "
                    f"{json.dumps(saved)[:80]} there and is {json.dumps(current)[:80]} now. "
                    f"{_REMEDY}"
                )
        require_shapes(content.rounds, n_groups, place.child("rounds"))
        self.rounds = list(content.rounds)


def require_shapes(rounds: Sequence[Round], n_groups: int, place: Place) -> None:
    """Refuse rounds whose multipliers are not by group or by cell of this number of groups."""
    for index, completed in enumerate(rounds):
        for name in ("lambda_", "delta"):
            shape = getattr(completed, name).shape
            if shape not in ((n_groups,), (n_groups, n_groups)):
                raise place.child(index).child(name).refuse(f"of shape {shape}")
