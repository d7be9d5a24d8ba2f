"""What is written is read back as it was, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from gomhc.lab.files import (
    Damaged,
    read,
    read_sealed,
    remove_unfinished,
    require_writable,
    seal,
    sha256,
    unseal,
    write_atomically,
)
from gomhc.lab.lock import InUse, lock

VALUES = {"step": 7, "rate": 1e-3, "text": "☃\n", "nested": {"list": [1, None, True]}}
HOLD = """
import sys, time
from pathlib import Path
from gomhc.lab.lock import lock
with lock(Path(sys.argv[1]), "the folder"):
    print("held", flush=True)
    time.sleep(60)
"""


class TestSeal:
    @pytest.mark.parametrize("indent", [None, 1])
    def test_values_come_back(self, indent: int | None) -> None:
        assert unseal(seal(VALUES, indent).encode()) == VALUES

    def test_every_flipped_bit_is_noticed(self) -> None:
        content = seal(VALUES, indent=1).encode()
        for place in range(8 * len(content)):
            flipped = bytearray(content)
            flipped[place // 8] ^= 1 << place % 8
            with pytest.raises(Damaged):
                unseal(bytes(flipped))

    def test_every_cut_is_noticed(self) -> None:
        content = seal(VALUES).encode()
        for length in range(len(content)):
            with pytest.raises(Damaged):
                unseal(content[:length])

    def test_the_file_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "state.json").write_text("{}")
        with pytest.raises(Damaged, match=r"state\.json is damaged: it does not begin with its checksum"):
            read_sealed(tmp_path / "state.json")


class TestReading:
    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes that have names")
    def test_pipes_and_devices_from_which_reading_would_never_end_are_refused(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
            for reader in (read, sha256):
                with pytest.raises((Damaged, IsADirectoryError)):
                    reader(path)

    def test_files_that_are_too_large_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"x" * 101)
        assert read(tmp_path / "file", most=101) == b"x" * 101
        with pytest.raises(Damaged, match="is larger than 100 bytes"):
            read(tmp_path / "file", most=100)


class TestWriting:
    def test_a_link_in_the_place_of_the_file_is_replaced_and_its_target_stays(self, tmp_path: Path) -> None:
        (tmp_path / "target").write_text("precious")
        (tmp_path / "file").symlink_to(tmp_path / "target")
        write_atomically(tmp_path / "file", "new")
        assert (tmp_path / "target").read_text() == "precious"
        assert (tmp_path / "file").read_text() == "new"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "target"]

    def test_what_a_killed_writer_left_is_removed_and_nothing_else(self, tmp_path: Path) -> None:
        for name in (".file.a1b2c3d4", "file", ".other.a1b2c3d4", ".lock"):
            (tmp_path / name).write_text("")
        remove_unfinished(tmp_path, "file")
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".other.a1b2c3d4", "file"]

    def test_a_place_that_cannot_be_written_is_told_before_the_work(self, tmp_path: Path) -> None:
        require_writable(tmp_path / "new" / "file")
        assert list((tmp_path / "new").iterdir()) == []
        (tmp_path / "file").write_text("")
        for path in (tmp_path, Path("/dev/null"), tmp_path / "file" / "below"):
            with pytest.raises((OSError, ValueError), match=r"folder or a device|Not a directory|File exists"):
                require_writable(path)


class TestLock:
    @pytest.fixture
    def holder(self, tmp_path: Path):
        process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "l")], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()
        process.wait()

    def test_a_second_process_is_refused_and_told_of_the_first(self, tmp_path: Path, holder) -> None:
        with (
            pytest.raises(
                InUse, match=rf"^the folder is in use by process {holder.pid} \(.*\) on \S+ since 2.*; wait for it"
            ),
            lock(tmp_path / "l", "the folder"),
        ):
            pass

    def test_one_that_has_it_and_did_not_say_who_it_is_yet_is_given_a_moment(self, tmp_path: Path) -> None:
        with lock(tmp_path / "l", "the folder"):
            text = (tmp_path / "l").read_text()
            (tmp_path / "l").write_text("")
            threading.Timer(0.2, (tmp_path / "l").write_text, [text]).start()
            with pytest.raises(InUse, match=f"in use by process {os.getpid()}"), lock(tmp_path / "l", "the folder"):
                pass

    def test_the_lock_of_a_killed_process_is_taken_over(self, tmp_path: Path, holder) -> None:
        holder.kill()
        holder.wait()
        with lock(tmp_path / "l", "the folder"):
            assert f"process {os.getpid()}" in (tmp_path / "l").read_text()
        assert not (tmp_path / "l").exists()

    def test_who_waits_gets_it_when_it_is_free(self, tmp_path: Path, holder) -> None:
        threading.Timer(0.3, holder.kill).start()
        begin = time.monotonic()
        with (
            pytest.warns(UserWarning, match=f"waiting for the folder, which is in use by process {holder.pid}"),
            lock(tmp_path / "l", "the folder", wait=True),
        ):
            assert time.monotonic() - begin > 0.2

    def test_two_in_one_process_exclude_each_other(self, tmp_path: Path) -> None:
        with lock(tmp_path / "l", "the folder"), pytest.raises(InUse), lock(tmp_path / "l", "the folder"):
            pass

    def test_a_deleted_lock_protects_nothing(self, tmp_path: Path) -> None:
        with lock(tmp_path / "l", "the folder"):
            (tmp_path / "l").unlink()
            with lock(tmp_path / "l", "the folder"):
                pass

    def test_the_lock_of_another_process_is_not_deleted(self, tmp_path: Path) -> None:
        first = lock(tmp_path / "l", "the folder")
        first.__enter__()
        (tmp_path / "l").unlink()
        with lock(tmp_path / "l", "the folder"):
            first.__exit__(None, None, None)
            with pytest.raises(InUse), lock(tmp_path / "l", "the folder"):
                pass

    def test_who_waited_for_a_lock_that_was_deleted_takes_the_new_one(self, tmp_path: Path) -> None:
        """The one that is freed is deleted, so a file that was opened before protects nothing any more."""
        held, order = threading.Event(), []

        def wait_for_it(name: str) -> None:
            with warnings.catch_warnings(action="ignore"), lock(tmp_path / "l", "the folder", wait=True):
                assert not held.is_set()
                held.set()
                time.sleep(0.05)
                held.clear()
                order.append(name)

        threads = [threading.Thread(target=wait_for_it, args=(str(number),)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(order) == [str(number) for number in range(6)]

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes that have names")
    def test_nothing_is_written_to_a_pipe_or_through_a_second_name(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "target").write_text("precious")
        os.link(tmp_path / "target", tmp_path / "second")
        for name in ("pipe", "second"):
            with pytest.raises(ValueError, match="must be a regular file"), lock(tmp_path / name, "the folder"):
                pass
        assert (tmp_path / "target").read_text() == "precious"

    def test_a_link_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "target").write_text("precious")
        (tmp_path / "l").symlink_to(tmp_path / "target")
        with pytest.raises(OSError, match="symbolic link"), lock(tmp_path / "l", "the folder"):
            pass
        assert (tmp_path / "target").read_text() == "precious"

    def test_where_there_are_no_locks_it_says_so_and_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fcntl = pytest.importorskip("fcntl", reason="another system")
        import errno

        def unsupported(*_: object) -> None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        monkeypatch.setattr(fcntl, "flock", unsupported)
        with pytest.warns(UserWarning, match="no locks"), lock(tmp_path / "l", "the folder"):
            pass
