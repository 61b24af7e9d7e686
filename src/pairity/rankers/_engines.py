"""The part that all adapters of an engine share: importing it, its settings and its model file."""

from abc import abstractmethod
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from pairity._utils.extras import import_extra
from pairity._utils.json_codec import Entry, Place, build, encode
from pairity._utils.validation import show
from pairity.exceptions import InputError, ModelFileError
from pairity.rankers._estimators import PairRanker


def unreadable(name: str, error: object) -> ModelFileError:
    """Return the error about an engine's file that the engine cannot read."""
    return ModelFileError(
        f"{name} cannot be read by its engine ({' '.join(str(error).split())[:300]}). Get the "
        "model again from where it was saved. If the file is unchanged, install the version of the "
        "engine that its manifest names."
    )


def draw_seed(random_state: Any) -> int:
    """Return an integer as it is, or draw one from a generator; None stands for NumPy's own."""
    if isinstance(random_state, Integral):
        return int(random_state)
    limit = np.iinfo(np.int32).max
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(limit))
    try:
        return int(check_random_state(random_state).randint(limit))
    except ValueError as error:
        raise InputError(
            "random_state must be an integer, a NumPy RandomState or None (got "
            f"{show(random_state)})."
        ) from error


class EngineRanker(PairRanker):
    """A ranker around an engine's own estimator; the two are saved together."""

    raw_features = True
    engine: ClassVar[tuple[str, str]]  # library and class
    fit_parameters: ClassVar[tuple[str, ...]]  # parameters of the engine's fit that are accepted

    @classmethod
    def _library(cls) -> Any:
        return import_extra(cls.engine[0], cls.__name__, cls.engine[0])

    @classmethod
    def _engine_class(cls) -> Any:
        return getattr(cls._library(), cls.engine[1])

    def _checked_estimator(self, fit_params: dict[str, Any]) -> Any:
        """Return the engine's estimator, after checking its class and the fit parameters."""
        kind, name = self._engine_class(), self.engine[1]
        for parameter in fit_params:
            if parameter not in self.fit_parameters:
                raise InputError(
                    f"{name} cannot take {parameter!r} through pairity. It takes "
                    f"{', '.join(self.fit_parameters)}."
                )
        estimator = kind() if self.estimator is None else self.estimator
        # Dask's estimators, which have a client, are handled by as_ranker.
        if not isinstance(estimator, kind) or hasattr(estimator, "client"):
            raise InputError(
                f"{type(self).__name__} trains {name}, not {type(estimator).__name__}. Pass "
                f"{name}(...) with the same parameters."
            )
        return estimator

    def _from_native(self, state: Entry, data: bytes) -> None:
        self._library()  # a missing engine is not the fault of the file
        self._read_state(state)
        try:
            self.model_, n_features = self._read_model(data)
        except Exception as error:
            raise unreadable(self.file_name, error) from error
        if n_features != self.n_features_in_:
            raise unreadable(self.file_name, f"{n_features} features, not {self.n_features_in_}")

    @abstractmethod
    def _read_state(self, state: Entry) -> None:
        """Restore the attributes that the manifest holds."""

    @abstractmethod
    def _read_model(self, data: bytes) -> tuple[Any, int]:
        """Return the engine's model from its file, and the number of its features."""

    def _encode_settings(self) -> dict[str, Any]:
        settings = super()._encode_settings()
        if self.estimator is not None and type(self.estimator) is self._engine_class():
            params = {name: encode(value, {}) for name, value in self._engine_params().items()}
            settings["estimator"] = {"class": self.engine[1], "params": params}
        return settings

    @classmethod
    def _decode_settings(cls, entry: Entry) -> dict[str, Any]:
        stored = entry.get("estimator")
        if not isinstance(stored, dict) or set(stored) != {"class", "params"}:
            return super()._decode_settings(entry)
        own = entry.entry("estimator")
        if own.read("class", str) != cls.engine[1]:
            raise own.refuse("class", f"{show(stored['class'])} where {cls.engine[1]} is needed")
        params = own.entry("params")
        settings = super()._decode_settings(Entry({**entry.values, "estimator": None}, entry.place))
        made = cls._make_estimator(params.settings(tuple(params.values), {}), own.place)
        return {**settings, "estimator": made}

    @classmethod
    def _make_estimator(cls, params: dict[str, Any], place: Place) -> Any:
        return build(cls._engine_class(), params, place)

    def _engine_params(self) -> Any:
        return self.estimator.get_params()


def as_engine_matrix(X: Any) -> Any:
    """Return sparse arrays as the matrices that engines accept, and anything else unchanged."""
    return sp.csr_matrix(X) if isinstance(X, sp.csr_array) else X
