"""Checkpoint: the rounds of a fit as they end, in a folder from which it can be resumed.

A resumed fit goes through the rounds that ended without training anew: the solver is told what it
was told then, and so goes on where the fit was interrupted, on this machine or on another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pairity._utils.files import atomic_write
from pairity._utils.json_codec import Entry, encode_array, encode_number
from pairity._utils.model_folder import read_model
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.exceptions import InputError
from pairity.rankers.adapters import ranker_class
from pairity.reweighting.algorithm import Round

FORMAT = "pairity checkpoint"
FILE = "rounds.json"


def describe_round(ended: Round) -> dict[str, Any]:
    """A round as JSON."""
    return {
        "number": int(ended.number),
        "lambda": encode_array(ended.lambda_),
        "violation": encode_array(ended.delta),
        "worst": encode_number(ended.violation),
        "auc": encode_number(ended.auc),
        "seconds": encode_number(ended.seconds),
    }


def read_round(entry: Entry, k: int) -> Round:
    """A round from its JSON; `k` is the number of groups."""
    shapes = ((k, k), (k,))
    return Round(
        number=entry.count("number"),
        lambda_=entry.array("lambda", shapes),
        delta=entry.array("violation", shapes),
        violation=entry.number("worst"),
        auc=entry.number("auc"),
        seconds=entry.number("seconds"),
    )


class Checkpoint:
    """A folder with ``rounds.json`` and the ranker of each round that ended.

    Parameters
    ----------
    folder : str or path
        Is made where it is not there.
    settings : mapping from name to JSON
        What the rounds depend on, data included: a folder that holds another fit is refused.
    n_groups : int
    ranker : the ranker to be fitted, not changed
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        settings: Mapping[str, Any],
        n_groups: int,
        ranker: Any,
    ) -> None:
        if not getattr(ranker, "file_name", ""):
            raise InputError(
                f"checkpoint keeps the ranker of every round, and {type(ranker).__name__} is none "
                "that pairity knows how to save. Leave checkpoint out."
            )
        self.folder, self.settings = Path(folder), json.loads(json.dumps(dict(settings)))
        self.n_groups, self.module = n_groups, getattr(ranker, "estimator", None)
        self.rounds: list[Round] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            there = sorted(each.name for each in self.folder.iterdir())
        except OSError as error:
            raise InputError(
                f"checkpoint={str(folder)!r} is no folder that can be used: {error.strerror}."
            ) from error
        if FILE in there:
            self._read()
        elif any(not each.startswith((".", "round-")) for each in there):
            raise InputError(
                f"checkpoint={str(folder)!r} holds other files, such as {there[0]!r}, and no "
                "checkpoint. Give a folder of its own."
            )

    def ended(self, number: int, lambda_: Array | None) -> tuple[Round, Any] | None:
        """A round that ended before, and its ranker.

        `lambda_` is what it would be trained with now, where that is settled beforehand.
        """
        found = next((each for each in self.rounds if each.number == number), None)
        if found is None:
            return None
        if lambda_ is not None and not np.allclose(found.lambda_, lambda_, rtol=1e-6, atol=1e-9):
            raise InputError(
                f"Round {number} of the checkpoint in {str(self.folder)!r} was trained with other "
                "multipliers than this fit comes to: it is from another version, or other data. "
                "Remove the folder, or give another."
            )
        manifest, files = read_model(self._place(number))
        entry = manifest.entry("ranker")
        return found, ranker_class(entry).from_files(entry, files, self.module)

    def keep(self, ended: Round, model: Any) -> None:
        """Write a round and its ranker; whole, or not at all."""
        model.save(self._place(ended.number))
        self.rounds.append(ended)
        said = {
            "format": FORMAT,
            "settings": self.settings,
            "rounds": [describe_round(each) for each in self.rounds],
        }
        with atomic_write(self.folder / FILE) as target:
            target.write(json.dumps(said, indent=1, allow_nan=False).encode())

    def _place(self, number: int) -> Path:
        return self.folder / f"round-{number}"

    def _read(self) -> None:
        path = self.folder / FILE
        try:
            said = Entry(json.loads(path.read_bytes()), FILE)
            if said.get("format") != FORMAT:
                raise said.refuse("format", show(said.get("format")))
            self._require_same(said.entry("settings").values)
            self.rounds = [read_round(each, self.n_groups) for each in said.entries("rounds")]
        except _OtherFitError as error:
            raise InputError(str(error)) from None
        except (OSError, ValueError) as error:
            raise InputError(
                f"{str(path)!r} is no checkpoint that can be read ({error}). Remove the folder to "
                "begin anew, or give another."
            ) from error

    def _require_same(self, stated: Mapping[str, Any]) -> None:
        names = [*self.settings, *(name for name in stated if name not in self.settings)]
        for name in names:
            then, now = stated.get(name), self.settings.get(name)
            if then != now:
                said = (
                    f"{name} was {json.dumps(then)[:80]} there and is {json.dumps(now)[:80]} here"
                )
                raise _OtherFitError(
                    f"The checkpoint in {str(self.folder)!r} is of another fit: {said}. Remove the "
                    "folder to begin anew, or give another."
                )


class _OtherFitError(Exception):
    """A checkpoint of other data or settings."""
