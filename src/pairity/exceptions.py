"""What pairity raises and warns.

::

    Exception
      PairityError                 everything we raise on purpose
        InputError (ValueError)    the data at the door: what is wrong, where, what to do
          ConstraintError          a constraint that this data or this setting cannot carry
          NotNumbersError (TypeError)       text or objects where numbers are needed
          ModelFileError           a saved model that cannot be read, or a place for none
        TrainingError (RuntimeError)      a ranker's own failure, with the round it happened in
        NoMemoryError (MemoryError)       memory ran out: while doing what, and what to lower
        MissingExtraError (ImportError)   an optional library is not installed
        DownloadError (OSError)           a data set that is not there and could not be fetched
        ContractError (AssertionError)    a ranker that `pairity.testing` found at fault
    UserWarning
      PairityWarning               everything we warn of
        TargetNotReachedWarning    the fit ended above its tolerance
        MemorisedWarning           the violation is measured on queries the ranker knows by heart
        ConvergenceWarning         an inner minimisation stopped early
"""


class PairityError(Exception):
    """Everything pairity raises on purpose."""


class InputError(PairityError, ValueError):
    """The data handed in cannot be used; the message says what to change."""


class ConstraintError(InputError):
    """A constraint that this data, or this way of enumerating pairs, cannot carry."""


class NotNumbersError(InputError, TypeError):
    """Something else where numbers are needed; a TypeError, as scikit-learn has it."""


class ModelFileError(InputError):
    """A model's files cannot be read or written; the message says which, why and what to do."""


class TrainingError(PairityError, RuntimeError):
    """A ranker failed; the message says in which round, and its own error stands behind it."""


class NoMemoryError(PairityError, MemoryError):
    """Memory ran out; the message says while doing what, and what takes less of it."""


class MissingExtraError(PairityError, ImportError):
    """An optional library is needed; the message has the line that installs it."""


class DownloadError(PairityError, OSError):
    """A file of a data set is not there and could not be fetched; the message says from where."""


class ContractError(PairityError, AssertionError):
    """A ranker lacks properties that every ranker must have.

    Attributes
    ----------
    properties : tuple of str, their names
    """

    def __init__(self, message: str, properties: tuple[str, ...] = ()) -> None:
        super().__init__(message, properties)
        self.properties = properties

    def __str__(self) -> str:
        return str(self.args[0])


class PairityWarning(UserWarning):
    """Everything pairity warns of."""


class TargetNotReachedWarning(PairityWarning):
    """The fit ended with the violation above its tolerance."""


class MemorisedWarning(PairityWarning):
    """The ranker knows the queries it is measured on by heart; on others it does not."""


class ConvergenceWarning(PairityWarning):
    """An inner minimisation stopped before it converged."""
