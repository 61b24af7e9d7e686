"""Exceptions and warnings of pairity.

::

    Exception
      PairityError                        every error that pairity raises on purpose
        InputError (ValueError)           arguments or data that cannot be used
          ConstraintError                 a constraint that does not fit the data or the settings
          NotNumbersError (TypeError)     text or objects instead of numbers
          ModelFileError                  a saved model that cannot be read or written
        TrainingError (RuntimeError)      an error of a ranker, with the round it happened in
        NoMemoryError (MemoryError)       not enough memory
        MissingExtraError (ImportError)   an optional library that is not installed
        DownloadError (OSError)           a data set that is absent and could not be downloaded
        ContractError (AssertionError)    a ranker or method that fails a check of `pairity.testing`
    UserWarning
      PairityWarning                      every warning of pairity
        TargetNotReachedWarning           a fit that ended above its tolerance
        MemorisedWarning                  a violation measured on queries that the ranker memorised
        ConvergenceWarning                an inner minimisation that stopped early
"""


class PairityError(Exception):
    """The base class of all errors that pairity raises on purpose."""


class InputError(PairityError, ValueError):
    """Arguments or data cannot be used; the message says what to change."""


class ConstraintError(InputError):
    """A constraint does not fit the data, or the way in which pairs are enumerated."""


class NotNumbersError(InputError, TypeError):
    """Numbers are needed; also a TypeError, which scikit-learn raises in this case."""


class ModelFileError(InputError):
    """A saved model cannot be read or written; the message names the file and the remedy."""


class TrainingError(PairityError, RuntimeError):
    """A ranker failed; the message names the round, and the ranker's error is the cause."""


class NoMemoryError(PairityError, MemoryError):
    """There is not enough memory; the message says for what, and what needs less of it."""


class MissingExtraError(PairityError, ImportError):
    """An optional library is not installed; the message has the command that installs it."""


class DownloadError(PairityError, OSError):
    """A file of a data set is absent and could not be downloaded; the message has its address."""


class ContractError(PairityError, AssertionError):
    """A ranker or a method lacks properties that it must have.

    Attributes
    ----------
    properties : tuple of str, the names of the properties
    """

    def __init__(self, message: str, properties: tuple[str, ...] = ()) -> None:
        super().__init__(message, properties)
        self.properties = properties

    def __str__(self) -> str:
        return str(self.args[0])


class PairityWarning(UserWarning):
    """The base class of all warnings of pairity."""


class TargetNotReachedWarning(PairityWarning):
    """A fit ended with a violation above its tolerance."""


class MemorisedWarning(PairityWarning):
    """The ranker has memorised the queries that its violation is measured on."""


class ConvergenceWarning(PairityWarning):
    """An inner minimisation stopped before it converged."""
