"""The catalogue of data sets: their content, their files, and how they are loaded."""

from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pairity._utils.progress import Show
from pairity.datasets import engineering_students, mslr, trec_w3c
from pairity.datasets.download import DataFile, Home, find_data, present
from pairity.exceptions import InputError

_MICROSOFT = "Microsoft's own terms, for research"


@dataclass(frozen=True)
class DataSet:
    """One entry of the catalogue.

    Attributes
    ----------
    name : str
    title : str
    size : str, the number of queries, items and features
    groups, labels : str
    licence : str, of the files, not of pairity
    load : str, the call that loads it
    files : tuple of DataFile
        Empty if the data set is synthetic or may not be redistributed.
    get : str
        How to get the data set if its files cannot be downloaded.
    """

    name: str
    title: str
    size: str
    groups: str
    labels: str
    licence: str
    load: str
    files: tuple[DataFile, ...] = ()
    get: str = ""

    @property
    def fetchable(self) -> bool:
        """Whether all files are published."""
        return bool(self.files) and all(file.url is not None for file in self.files)

    def places(self, data_home: Home = None) -> dict[str, Path | None]:
        """Return the path of each file on this machine, None if it is absent."""
        return {file.name: present(file, data_home) for file in self.files}

    def fetch(self, data_home: Home = None, progress: Show = "auto") -> list[Path]:
        """Return the files, found or downloaded, after every digest is checked.

        Parameters
        ----------
        data_home : path, optional
            The folder that is searched and to which files are downloaded. By default the folder
            of ``PAIRITY_DATA`` is searched, and files are downloaded to the user's cache.
        progress : {"auto"} or bool
        """
        if not self.files:
            raise InputError(f"{self.name} has no files to download. {self.get}")
        target = None if data_home is None else Path(data_home).expanduser()
        return [find_data(file, data_home, target=target, progress=progress) for file in self.files]

    def to_dict(self, data_home: Home = None) -> dict[str, Any]:
        """Return plain Python values, with the paths of the files."""
        files = [
            {"name": file.name, "sha256": file.sha256, "url": file.url, "path": path and str(path)}
            for file, path in zip(self.files, self.places(data_home).values(), strict=True)
        ]
        return {**asdict(self), "files": files}


CATALOGUE = {
    data_set.name: data_set
    for data_set in (
        DataSet(
            name="trec_w3c",
            title="TREC Enterprise: experts of the W3C by topic",
            size="48 topics × 200 candidates, 5 features",
            groups="gender",
            labels="above_median (with a built-in bias), expert, order",
            licence="GPL-3.0",
            load="pairity.datasets.load_trec_w3c()",
            files=(trec_w3c.FILE,),
        ),
        DataSet(
            name="engineering_students",
            title="First-year students of a Chilean engineering school by entrance year",
            size="5 years × 441 to 520 students, 5 features",
            groups="gender; type of school; both",
            labels="above_median, score",
            licence="GPL-3.0",
            load="pairity.datasets.load_engineering_students()",
            files=tuple(engineering_students.FILES.values()),
        ),
        DataSet(
            name="mslr_excerpt",
            title="Web pages by search query: about 10,000 rows of Microsoft's MSLR-WEB10K",
            size="about 90 queries of 120 pages, 136 features",
            groups="5 quantiles of a quality score",
            labels="relevant, grade",
            licence=f"MPL-2.0 as published; {_MICROSOFT}",
            load="pairity.datasets.load_mslr('excerpt')",
            files=tuple(mslr.EXCERPT.values()),
        ),
        *(
            DataSet(
                name=f"mslr_{version}",
                title=f"Web pages by search query: Microsoft's MSLR-{version.upper()}",
                size=f"{queries} queries of 120 pages, 136 features",
                groups="5 quantiles of a quality score",
                labels="relevant, grade",
                licence=_MICROSOFT,
                load=f"pairity.datasets.load_mslr('{version}', data_home=...)",
                get="It may not be redistributed. Download it from Microsoft's page \"Microsoft "
                f'Learning to Rank Datasets" and unpack it to MSLR-{version.upper()}/Fold1 etc.',
            )
            for version, queries in (("web10k", "10,000"), ("web30k", "about 31,500"))
        ),
        DataSet(
            name="synthetic",
            title="Lists whose labels favour one group by a known amount",
            size="as requested",
            groups="two or more",
            labels="biased, unbiased",
            licence="none: it is synthetic",
            load="pairity.datasets.make_biased_ranking(300, 60, random_state=0)",
            get="The call above and `pairity demo` generate it.",
        ),
    )
}
"""All data sets by name."""


def find_data_set(name: str) -> DataSet:
    """Return the data set with a name."""
    if name not in CATALOGUE:
        close = get_close_matches(name.lower(), CATALOGUE, 1, 0.4)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise InputError(f"{name!r} is not a data set.{meant} Choose from {', '.join(CATALOGUE)}.")
    return CATALOGUE[name]
