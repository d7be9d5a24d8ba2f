"""The stamp of the sources that the compiled library is built from. The build runs this file, so it imports no torch.

python stamp.py FOLDER prints the stamp of the sources in a folder.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path


def stamp(sources: Path) -> str:
    """A hash of the names and contents of the C++ files in this folder."""
    digest = sha256()
    for path in sorted(sources.iterdir()):
        if path.suffix in (".cpp", ".h"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def has_stamp(library: Path, expected: str) -> bool:
    """Whether this file was built from those sources. It is read and not loaded: loading would run its code."""
    return f"gomhc native sources {expected}".encode() in library.read_bytes()


if __name__ == "__main__":
    print(stamp(Path(sys.argv[1])))
