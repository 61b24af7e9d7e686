"""FairRanker: the estimator around Algorithm 1."""

import copy
import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from pairity._utils.html import Html, join, tag
from pairity._utils.progress import Progress
from pairity._utils.typing import Array
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.queries import Queries
from pairity.data.sources import (
    errors_about,
    is_dask,
    is_queries,
    read_alike,
    read_without_features,
)
from pairity.exceptions import InputError, ModelFileError
from pairity.rankers._estimators import (
    PairRanker,
    RankingEstimator,
    Stored,
    predict_in_blocks,
    read_features,
    remember_queries,
    require_same_features,
)
from pairity.reweighting.algorithm import Round, Trace, retrain
from pairity.reweighting.diagnostics import warn_about
from pairity.reweighting.export import export_pairs
from pairity.reweighting.manifest import describe_model
from pairity.reweighting.outcomes import Outcome
from pairity.reweighting.paths import Path, lambda_path, read_values, tolerance_path
from pairity.reweighting.preparation import Setup, read_max_loss
from pairity.reweighting.weights import PairWeights


class FairRanker(RankingEstimator):
    """Reweights pairs of training items to lower a stated violation between groups.

    It trains a ranker, measures the violation, moves one multiplier per pair of groups, weights
    the training pairs by the multipliers and trains again, until the violation is within the
    tolerance (Algorithm 1). The resulting ranker needs no group to predict.

    Parameters
    ----------
    ranker : default=LinearRanker()
        The ranker to train: an `LGBMRanker`, `XGBRanker`, `CatBoostRanker`, PyTorch module or
        scikit-learn regressor with any settings (see `pairity.rankers.adapters`), or an object
        that follows the protocol `pairity.rankers.base.Ranker`.
    constraint : str, Constraint or callable, default="inter"
        Which disparity to lower: "statistical", "inter", "intra", "marginal", an object such as
        ``InterGroup(average="pair")``, or a function of (queries, scores); see
        `pairity.constraints`.
    tolerance : float or "auto", default=0.01
        The violation at which the fit ends. The violation is the largest gap between two entries
        of delta that are compared. "auto" is the noise floor of the queries that it is measured
        on: what they cannot show is not corrected.
    max_rounds : int, default=50
        The largest number of retrainings; 0 gives the plain ranker.
    solver : {"damped", "plain"} or Solver, default="damped"
        How the multipliers move: root finding (`DampedStep`), or the paper's λ ← λ - η Δ
        (`PlainStep`).
    enumeration : {"preference", "both"}, default="preference"
        Whether a pair is enumerated once, or in both orders as in a literal reading of the paper.
        With both orders the intra-group constraint cannot be trained.
    weighting : {"auto", "reversible", "exponential", "paper", "closed-form"}, default="auto"
        How the weight of a pair follows its λ (`pairity.reweighting.weights.Weigher`).
        "paper": 2σ(λ), at most 2, which often cannot lower the violation far unless the group is
        among the features. "reversible": the same up to |λ| = 3; beyond, the weight grows up to 12,
        or the opposite order has a growing weight, so that the preferences of a cell can be turned
        round. "exponential": e^λ.
        "closed-form": 2σ of λ scaled as in Proposition 1. "auto" is "reversible" if the ranker can
        train on mirrored pairs, as all rankers of pairity can, and otherwise "exponential"; but
        "paper" where a ranker that may memorise has fewer than 8 training queries.
    schedule : {"auto", "retrain", "interleaved"}, default="auto"
        Whether the ranker is trained anew for every λ, or λ moves between the trees of one
        training run (`pairity.reweighting.interleaving.DualAscent`), which LightGBM and XGBoost
        support. Such a run is repeated from its last λ while that lowers the violation. "auto"
        interleaves if the ranker can, unless a solver is chosen (interleaving does not use it) or
        there are evaluation sets (early stopping would remove the trees for which λ is right).
    validation : "auto", None, float, int, Queries or mapping, default="auto"
        The queries on which the violation is measured and lowered. None: the training queries. A
        whole number: that number of folds by query; every query is measured by a ranker that was
        trained without its fold. A share below 1: that share of the queries, held out. Queries or
        a mapping: other data. "auto": two folds for rankers that may memorise their training
        queries (boosters, networks, regressors), and the training queries for others
        (`LinearRanker`), for Dask collections, for features in files and for fewer than 8 queries.
        With folds or a share, the final ranker is trained on all queries: with the weights found,
        or, if λ moves during the run, by its training queries, corrected by how much better those
        of the folds looked than held-out ones.
    max_loss : float or mapping, optional
        How much less utility than the plain ranker a round may have to be kept, on the same
        queries: a loss of AUC, such as 0.02, or of NDCG, such as ``{"ndcg@10": 0.02}``. If no
        round is within it, the plain ranker is kept.
    progress : {"auto"} or bool, default="auto"
        Whether to show on stderr the progress of a fit that takes longer than two seconds.
        "auto" shows it on a terminal or in a notebook; True also in a log.
    random_state : int, RandomState instance or None
        Selects the held-out queries and the folds; None selects the same ones as 0.
    checkpoint : str or path, optional
        A folder in which every completed round is stored: λ, its measurements and the ranker. A
        fit with the same data and settings, on this machine or another, resumes after the stored
        rounds; a fit with other data or settings refuses the folder. `max_rounds` may differ.

    Attributes
    ----------
    ranker_ : the ranker of the best round, fitted
    outcome_ : FitOutcome
        How the fit ended (`kind`), what was reached, where that was measured, and how sure it is.
        It prints as a few sentences.
    pair_weights_ : PairWeights, the K × K tables of the best round
    lambda_ : array, the multipliers of the best round
    violation_ : float, the violation of the best round on the queries that it is measured on
    history_ : tuple of Round, all rounds: λ, delta, violation, noise floor, AUC, seconds
        Round 0 is the plain ranker, which an interleaved fit does not train without `max_loss`.
    groups_ : tuple of str
    training_digest_ : str, the digest of the training data; see `Queries.digest`
    n_features_in_, feature_names_in_ : as in scikit-learn

    Notes
    -----
    Pairs with an item without a group have weight 1 in training, and are left out of the
    constraint. Ctrl-C ends the fit with the best round so far.

    Cross-validate by query, with scikit-learn's ``GroupKFold`` and ``groups=qid``. Folds that
    split queries, such as those of ``KFold``, silently drop the pairs between their parts.

    References
    ----------
    R. Sonoda, *A Pre-processing Method for Fairness in Ranking*, 2021.

    Examples
    --------
    >>> from pairity import FairRanker, LinearRanker
    >>> from pairity.datasets import make_biased_ranking
    >>> data = make_biased_ranking(100, 40, random_state=0)
    >>> model = FairRanker(LinearRanker(), constraint="inter", tolerance=0.01)
    >>> model.fit(data.X, data.y, qid=data.qid, sensitive_features=data.sensitive_features)
    FairRanker(ranker=LinearRanker())
    >>> model.outcome_.kind
    <Outcome.WITHIN_TOLERANCE: 'The violation came within the tolerance.'>
    >>> model.predict(data.X[:3]).shape
    (3,)
    """

    def __init__(
        self,
        ranker: Any = None,
        constraint: Any = "inter",
        *,
        tolerance: Any = 0.01,
        max_rounds: int = 50,
        solver: Any = "damped",
        enumeration: str = "preference",
        weighting: str = "auto",
        schedule: str = "auto",
        validation: Any = "auto",
        max_loss: Any = None,
        progress: Any = "auto",
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.ranker = ranker
        self.constraint = constraint
        self.tolerance = tolerance
        self.max_rounds = max_rounds
        self.solver = solver
        self.enumeration = enumeration
        self.weighting = weighting
        self.schedule = schedule
        self.validation = validation
        self.max_loss = max_loss
        self.progress = progress
        self.random_state = random_state
        self.checkpoint = checkpoint

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        group: Any = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        query_weight: Any = None,
        **fit_params: Any,
    ) -> Self:
        """Train until the violation is within the tolerance.

        `LinearRanker`, `DaskLGBMRanker` and `DaskXGBRanker` train on Dask collections without
        moving the rows (`pairity.data.distributed`). A query must lie in one partition.

        Parameters
        ----------
        X : table or matrix of shape (n_items, n_features), or Queries
            With `Queries`, leave out y, qid, group, sensitive_features and the weights.
        y : labels of shape (n_items,), binary, graded or real; a higher one is preferred
        qid : query ids of shape (n_items,), in any order of rows
        group : number of rows of each query, as in LightGBM, in place of qid
        sensitive_features : groups of shape (n_items,), or several columns for intersections
        sample_weight : item weights of shape (n_items,), optional
            The weight of a pair contains the product of its items' weights.
        query_weight : one weight per query, as a column or a mapping, or "equal", optional
            With "equal", the training pairs of every query have the same total weight, so that
            long lists do not dominate, as they do not in a constraint that averages over queries.
            The violation and the AUC are measured as without it.
        **fit_params
            Passed to the ranker's engine in every round, under the engine's names: ``eval_set``
            with ``eval_qid``, ``callbacks``, and so on.
        """
        columns = {
            "X": X, "y": y, "qid": qid, "group": group, "sensitive_features": sensitive_features,
            "sample_weight": sample_weight, "query_weight": query_weight,
        }  # fmt: skip
        setup = Setup.of(self, columns, fit_params)
        progress = Progress(int(self.max_rounds) + 1, "Reweighting", self.progress)

        def report(current: Round) -> None:
            note = f"violation {current.violation:.4f}, AUC {current.auc:.4f}"
            progress.advance(current.number + 1, note)

        with setup.open() as queries:
            remember_queries(self, queries, is_queries(X))
            problem = setup.problem(queries)
            digest = queries.digest()
            store = setup.checkpoint(problem, digest)
            _, max_loss = read_max_loss(self.max_loss)
            trace = Trace(self.tolerance, int(self.max_rounds), max_loss, report, store)
            with progress:
                solution = setup.solve(problem, trace)
            self._trained_on: Any = problem.queries.training_record(queries)
        sizes = {"items": queries.n_items, "queries": queries.n_queries}
        self._training = {**sizes, "equal_queries": queries.equal_queries}
        self._feature_types = queries.feature_types
        self.training_digest_ = digest
        self.ranker_ = solution.model
        self.outcome_ = solution.outcome
        self.pair_weights_ = PairWeights.of(solution.table, queries.groups)
        self.lambda_ = solution.best.lambda_
        self.violation_ = solution.best.violation
        self.history_ = solution.rounds
        self.groups_ = queries.groups
        warn_about(solution, problem)
        return self

    def predict(self, X: Any) -> Array:
        """Return scores of shape (n_items,), in the order of the rows; no group is needed.

        Parameters
        ----------
        X : table or matrix of shape (n_items, n_features), or Queries
            For a Dask collection or `DaskQueries`, the scores are a lazy Dask array, computed
            partition by partition.
        """
        check_is_fitted(self, "ranker_")
        if is_queries(X) and not isinstance(X, Queries):
            X = X["X"]
        if is_dask(X):
            from pairity.data.distributed.queries import lazy_scores

            if hasattr(X, "queries_on_workers"):  # features without their names
                return lazy_scores(self.ranker_, X)  # type: ignore[no-any-return]
            light = copy.copy(self)
            light.ranker = light.validation = light._trained_on = None  # not sent to the workers
            return lazy_scores(light, X)  # type: ignore[no-any-return]
        raw = bool(getattr(self.ranker_, "raw_features", False))
        features = read_features(self, X, raw=raw)
        if isinstance(features, ParquetFeatures) and not isinstance(self.ranker_, PairRanker):
            return predict_in_blocks(self.ranker_.predict, features, raw=raw)
        return np.asarray(self.ranker_.predict(features), dtype=np.float64)

    def path(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        group: Any = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        query_weight: Any = None,
        along: str = "lambda",
        values: Any = None,
        test: Any = None,
        keep_models: bool = False,
        **fit_params: Any,
    ) -> Path:
        """Measure utility and violation between the plain ranker and this one, and beyond.

        Each point is one training, which starts from its neighbour's model. A model that is not
        fitted is fitted first; a fitted model is not changed.

        Parameters
        ----------
        X, y, qid, group, sensitive_features, sample_weight, query_weight, **fit_params
            The arguments of `fit`.
        along : {"lambda", "tolerance"}, default="lambda"
            "lambda": with the weights of x · λ*, where λ* is `lambda_`. "tolerance": for each
            tolerance, with the smallest share of λ* that was found to come within it.
        values : numbers, optional
            The x, by default nine from 0 to 2; or the tolerances, by default six from the plain
            ranker's violation down to the model's `tolerance`.
        test : Queries or mapping, optional
            Queries to report on, in the forms that `validation` accepts; Dask collections if the
            training data are. The default is the queries that the violation is measured on.
        keep_models : bool, default=False
            Whether every point keeps its fitted ranker.

        Returns
        -------
        Path
            It prints as a table; see also `Path.to_frame` and `Path.plot`.

        Notes
        -----
        A tolerance below the model's own violation takes one more run of Algorithm 1. Every point
        is trained with fixed weights. If λ moved during one training run (schedule "interleaved"
        and, for boosters, "auto"), the point x = 1 is therefore close to this model but not
        equal, and a path along tolerances computes its own λ*.

        Examples
        --------
        >>> from pairity import FairRanker
        >>> from pairity.datasets import make_biased_ranking
        >>> train = make_biased_ranking(50, 40, random_state=0).queries()
        >>> path = FairRanker().path(**train, values=[0, 1, 2])
        >>> [bool(path[1].violation < point.violation) for point in (path[0], path[2])]
        [True, True]
        """
        if along not in ("lambda", "tolerance"):
            raise InputError(f"along is {along!r}; choose 'lambda' or 'tolerance'.")
        if values is not None:
            values = read_values(values, along)
        data = {
            "X": X, "y": y, "qid": qid, "group": group, "sensitive_features": sensitive_features,
            "sample_weight": sample_weight, "query_weight": query_weight,
        }  # fmt: skip
        if not hasattr(self, "ranker_"):
            self.fit(**data, **fit_params)
        setup = Setup.of(self, data, fit_params)
        with setup.open(groups=self.groups_) as queries:
            require_same_features(self, queries.feature_names, queries.n_features)
            problem = setup.problem(queries)
            if test is not None:
                with errors_about("test"):
                    test = read_alike(test, queries, raw=setup.raw)
                    setup.check(test)
            options = {"test": test, "keep_models": keep_models, "previous": self.ranker_}
            if along == "lambda":
                shares = np.linspace(0, 2, 9) if values is None else values
                return lambda_path(problem, self.lambda_, shares, **options)
            lambda_ = self.lambda_
            smallest = float(self.outcome_.tolerance if values is None else min(values))
            further = self.violation_ > smallest and self.outcome_.kind is not Outcome.UNREACHABLE
            if further or setup.schedule == "interleaved":
                solution = retrain(problem, setup.solver, Trace(smallest, int(self.max_rounds)))
                lambda_, options["previous"] = solution.best.lambda_, solution.model
            return tolerance_path(problem, lambda_, values, smallest=smallest, **options)

    def export_pairs(
        self,
        path: str | os.PathLike[str],
        data: Mapping[str, Any] | None = None,
        *,
        format: str | None = None,  # noqa: A002 - the usual name
        block: int = 1_000_000,
    ) -> None:
        """Write the training pairs with their learned weights, for training in other tools.

        Parameters
        ----------
        path : str or path
            A file ending in ``.parquet``, or in ``.pairs`` or ``.tsv`` for CatBoost's format. It
            is written completely or not at all.
        data : Queries or mapping with y, qid and sensitive_features, optional
            Other queries whose pairs are written. The default is the queries that `fit` trained
            on, with the row numbers of the table that was passed to it. If `fit` was called with
            ``query_weight="equal"``, these queries count equally too.
        format, block
            See `pairity.reweighting.export.export_pairs`, which describes the formats.

        Notes
        -----
        For this purpose a fitted model keeps the labels, query ids, groups and weights of its
        training items (about 20 bytes per item), also when it is pickled, but not their features.
        """
        check_is_fitted(self, "ranker_")
        if data is None:
            if self._trained_on is None:
                raise InputError(
                    "This model does not have its training data, since it was loaded from files "
                    "or trained on Dask collections. Pass the data of fit to export_pairs."
                )
            queries, rows = self._trained_on
        else:
            queries, rows = read_without_features(data), None
            if self._training["equal_queries"]:
                queries = queries.with_equal_queries()
        export_pairs(queries, self.pair_weights_, path, format=format, rows=rows, block=block)

    # --- notebooks -------------------------------------------------------------------------------

    def _repr_html_inner(self) -> str:
        """scikit-learn's diagram and, for a fitted model, the outcome and the pair weights."""
        diagram = str(estimator_html_repr(self))
        if not hasattr(self, "ranker_"):
            return diagram
        outcome = tag("p", str(self.outcome_))
        return join((Html(diagram), outcome, Html(self.pair_weights_._repr_html_())))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    # --- saving ----------------------------------------------------------------------------------

    def to_files(self) -> Stored:
        """Return the manifest's content and the files of the saved model; see `save`."""
        check_is_fitted(self, "ranker_")
        if type(self) is not FairRanker or not hasattr(self.ranker_, "to_files"):
            unknown = self if type(self) is not FairRanker else self.ranker_
            raise ModelFileError(
                f"pairity cannot save the ranker {type(unknown).__name__}. Save ranker_ with its "
                "own methods, and the weights with pair_weights_.to_json()."
            )
        inner = self.ranker_.to_files()
        content = {"model": describe_model(self), **inner.content}
        return Stored(content, inner.files, inner.libraries)
