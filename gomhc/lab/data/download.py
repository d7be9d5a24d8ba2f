"""Files that gomhc downloads instead of shipping: fetched once, checked by their SHA-256, and kept in a cache."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import platformdirs

from gomhc.lab.files import remove_unfinished, sha256
from gomhc.lab.lock import lock

TIMEOUT = 30
"""Seconds without data after which a download fails."""
SILENCE = 5.0
"""Seconds between lines about the progress of a download."""
PIECE = 2**20
"""Bytes that are copied at a time."""


def cache_directory() -> Path:
    """Return the folder of downloads and tokens: GOMHC_CACHE, or gomhc in the user's cache folder."""
    chosen = os.environ.get("GOMHC_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("gomhc", appauthor=False)


@dataclass(frozen=True)
class Remote:
    """A file on the web with known content."""

    name: str
    """Path in the cache."""
    url: str
    sha256: str

    @property
    def path(self) -> Path:
        """Path of the downloaded file."""
        return cache_directory() / self.name

    def fetch(self) -> Path:
        """Return the path of the file, after downloading it if it is not in the cache.

        A download with another SHA-256 is not kept. One process downloads; others wait for it.
        """
        if self.path.exists():
            if sha256(self.path) != self.sha256:
                raise ValueError(f"{self.path} is not the file at {self.url}; delete it and try again")
            return self.path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with lock(self.path.with_name(f".{self.path.name}.lock"), str(self.path), wait=True):
            if not self.path.exists():  # or another process has downloaded it meanwhile
                self._download()
        return self.fetch()

    def _copy(self, answer: IO[bytes], file: IO[bytes], size: int) -> None:
        """Copy the answer to the file, and print every few seconds how much is left."""
        started = last_line = time.monotonic()
        print(f"downloading {self.url} ({size / 1e6:,.0f} MB)", file=sys.stderr, flush=True)
        copied = 0
        while piece := answer.read(PIECE):
            copied += file.write(piece)
            if (now := time.monotonic()) - last_line > SILENCE:
                left, last_line = (now - started) * max(0, size - copied) / copied, now
                print(
                    f"{copied / 1e6:,.0f} of {size / 1e6:,.0f} MB; about {left:.0f} s left", file=sys.stderr, flush=True
                )

    def _download(self) -> None:
        """Download to a temporary file beside the path, and move it there if its SHA-256 is right."""
        # By hand rather than with pooch, whose temporary files have no name of ours: a killed download of TinyStories
        # would leave two gigabytes that nobody removes.
        remove_unfinished(self.path.parent, self.path.name)
        with tempfile.NamedTemporaryFile(dir=self.path.parent, prefix=f".{self.path.name}.", delete=False) as partial:
            try:
                with urllib.request.urlopen(self.url, timeout=TIMEOUT) as answer:
                    self._copy(answer, partial, int(answer.headers.get("Content-Length") or 0))
                partial.close()
                if (received := sha256(Path(partial.name))) != self.sha256:
                    raise ValueError(f"{self.url} has SHA-256 {received}, expected {self.sha256}; not kept")
                os.replace(partial.name, self.path)
            except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
                raise ConnectionError(
                    f"cannot download {self.url} ({error}); without a network, put the file at {self.path}, or train "
                    f"on the corpus that needs no download: gomhc train stories-tiny"
                ) from error
            finally:
                partial.close()  # Windows deletes no file that is open
                Path(partial.name).unlink(missing_ok=True)
