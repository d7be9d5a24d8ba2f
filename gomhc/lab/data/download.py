"""Where does a file that we do not ship come from? From its publisher, once, checked by its SHA-256."""

from __future__ import annotations

import os
import shutil
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from gomhc.lab.files import remove_unfinished, sha256
from gomhc.lab.lock import lock

TIMEOUT = 30
"""Seconds without an answer after which a download gives up."""


def cache_directory() -> Path:
    """Where downloads and tokens are kept: GOMHC_CACHE, or gomhc in the user's cache."""
    if chosen := os.environ.get("GOMHC_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gomhc"


@dataclass(frozen=True)
class Remote:
    """A file somewhere else, of known content."""

    name: str
    url: str
    sha256: str

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return cache_directory() / self.name

    def fetch(self) -> Path:
        """Its path, after a download if it is not there yet. Content that is not the expected one is never kept."""
        if self.path.exists():
            if sha256(self.path) != self.sha256:
                raise ValueError(f"{self.path} is not the file that {self.url} should be; delete it and try again")
            return self.path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with lock(self.path.with_name(f".{self.path.name}.lock"), str(self.path), wait=True):
            return self._download() if not self.path.exists() else self.fetch()  # another process may have been faster

    def _download(self) -> Path:
        remove_unfinished(self.path.parent, self.path.name)
        prefix = f".{self.path.name}."
        with tempfile.NamedTemporaryFile(dir=self.path.parent, prefix=prefix, delete=False) as partial:
            try:
                with urllib.request.urlopen(self.url, timeout=TIMEOUT) as answer:
                    shutil.copyfileobj(answer, partial)
                partial.close()
                if (found := sha256(Path(partial.name))) != self.sha256:
                    raise ValueError(f"{self.url} gave a file with SHA-256 {found}, expected {self.sha256}; not kept")
                os.replace(partial.name, self.path)
            except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
                raise ConnectionError(
                    f"cannot download {self.url} ({error}); where there is no network, put the file at {self.path}, "
                    f"or train on the corpus that needs none: gomhc train stories-tiny"
                ) from error
            finally:
                Path(partial.name).unlink(missing_ok=True)
        return self.path
