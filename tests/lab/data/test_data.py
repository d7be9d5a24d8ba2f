"""Text becomes batches: nothing is lost, nothing held out is trained on, and a batch depends on seed and step alone."""

from __future__ import annotations

import functools
import json
import re
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gomhc.lab.data import corpora, download, tokenizers
from gomhc.lab.data.corpora import Files, Split, Stories, documents
from gomhc.lab.data.download import Remote, cache_directory
from gomhc.lab.data.story_grammar import stories
from gomhc.lab.data.tokenizers import BytePairTokenizer, CharacterTokenizer, TrainedTokenizer, from_description
from gomhc.lab.data.tokens import batch, evaluation_windows, prepare
from gomhc.lab.files import seal, sha256, unseal
from gomhc.lab.lock import lock

SHARED = Path(__file__).parents[4] / "shared" / "data"
needs_tables = pytest.mark.skipif(not (SHARED / "gpt2").exists(), reason="GPT-2's tables are not beside the project")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GOMHC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class TestStories:
    def test_same_seed_tells_the_same_stories_and_another_seed_others(self) -> None:
        assert list(stories(5, seed=1)) == list(stories(9, seed=1))[:5]
        assert not set(stories(5, seed=1)) & set(stories(5, seed=2))

    def test_nothing_is_left_to_fill_in(self) -> None:
        assert not [story for story in stories(2000) if re.search(r"[{}]", story)]

    def test_hero_of_the_first_sentence_is_in_the_last_paragraph_too(self) -> None:
        names = re.compile(r"named (\w+)|^(\w+) was|name was (\w+)")
        for story in stories(200):
            found = names.search(story)
            assert found is not None
            assert next(filter(None, found.groups())) in story.splitlines()[-1]

    def test_stories_do_not_repeat(self) -> None:
        assert len(set(stories(10_000))) == 10_000


@functools.cache
def _trained() -> TrainedTokenizer:
    return TrainedTokenizer.of(stories(50), 400)


class TestTokenizers:
    @given(st.text(alphabet="abc \n<|endofx>", max_size=50))
    def test_characters_come_back(self, text: str) -> None:
        tokenizer = CharacterTokenizer.of(["abc \n<|endofx>"], has_end=True)
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert from_description(tokenizer.describe()) == tokenizer

    def test_end_of_text_is_a_token_of_its_own(self) -> None:
        tokenizer = CharacterTokenizer.of(["ab"], has_end=True)
        assert (tokenizer.vocab_size, tokenizer.end_of_text) == (3, 2)
        assert tokenizer.decode([0, 2, 1]) == "ab"
        assert CharacterTokenizer.of(["ab"], has_end=False).end_of_text is None

    def test_unknown_character_is_named(self) -> None:
        with pytest.raises(ValueError, match="the character 'é' is not among the 2 that this model knows: 'ab'"):
            CharacterTokenizer.of(["ab"], has_end=True).encode("abé")

    @needs_tables
    def test_byte_pairs_are_those_of_gpt2(self) -> None:
        tokenizer = BytePairTokenizer(str(SHARED / "gpt2"))
        assert tokenizer.encode("Once upon a time") == [7454, 2402, 257, 640]
        assert (tokenizer.vocab_size, tokenizer.end_of_text) == (50257, 50256)

    @needs_tables
    @pytest.mark.parametrize("text", ["naïve 日本 🙂\t\n  two", "<|endoftext|> is text here", ""])
    def test_byte_pairs_come_back(self, text: str) -> None:
        tokenizer = BytePairTokenizer(str(SHARED / "gpt2"))
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.end_of_text not in tokenizer.encode(text)

    @given(st.text(max_size=50))
    def test_trained_byte_pairs_come_back_whatever_they_were_trained_on(self, text: str) -> None:
        tokenizer = _trained()
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens) == text
        assert all(0 <= token < tokenizer.end_of_text for token in tokens)

    def test_trained_byte_pairs_shorten_their_text_and_end_with_the_end_of_a_document(self) -> None:
        tokenizer, text = _trained(), " ".join(stories(30))
        assert tokenizer.vocab_size == 400
        assert tokenizer.end_of_text == 399
        assert len(tokenizer.encode(text)) < len(text) / 2
        assert "<|endoftext|>" in tokenizer.decode(tokenizer.encode("<|endoftext|>"))
        assert tokenizer.decode([*tokenizer.encode("boat"), tokenizer.end_of_text]) == "boat"

    def test_training_byte_pairs_again_and_describing_them_give_the_same(self) -> None:
        tokenizer = _trained()
        assert TrainedTokenizer.of(stories(50), 400) == tokenizer
        assert from_description(tokenizer.describe()) == tokenizer

    def test_description_that_is_not_of_byte_pairs_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="these are not byte pairs of the tokenizers package"):
            from_description({"kind": "bpe", "pairs": "{}"}).encode("x")

    @pytest.mark.parametrize("name", ["bpe:", "bpe:many", "bpe:256", "bpe:99999999", "bpe:-3"])
    def test_size_of_a_trained_vocabulary_is_checked(self, name: str) -> None:
        with pytest.raises(ValueError, match="the size of the vocabulary in bpe:SIZE must be"):
            prepare(Stories(), name)

    def test_trained_byte_pairs_are_kept_with_the_tokens(self, tmp_path: Path, cache: Path) -> None:
        file = tmp_path / "corpus.txt"
        file.write_text("<|endoftext|>".join(stories(50)))
        first = prepare(Split(file), "bpe:300")
        assert isinstance(first.tokenizer, TrainedTokenizer)
        text = first.tokenizer.decode(first.validation.tolist())
        assert text == "".join(Split(file).validation())
        again = prepare(Split(file), "bpe:300")
        assert (again.tokenizer, again.fingerprint) == (first.tokenizer, first.fingerprint)
        assert prepare(Split(file), "bpe:301").fingerprint != first.fingerprint

    def test_folder_without_tables_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"gpt2, or a folder with GPT-2's vocab\.json"):
            BytePairTokenizer(str(tmp_path)).encode("x")


class TestSplit:
    def split(self, path: Path, *texts: str) -> tuple[list[str], list[str]]:
        path.write_text("<|endoftext|>\n".join(texts), encoding="utf-8")
        return list(Split(path).train()), list(Split(path).validation())

    def test_each_document_is_on_one_side_and_copies_on_the_same(self, tmp_path: Path) -> None:
        texts = list(stories(300))
        train, validation = self.split(tmp_path / "t", *texts, *texts)
        assert sorted(train + validation) == sorted(texts + texts)
        assert not set(train) & set(validation)
        assert 0.01 < len(validation) / 600 < 0.1

    def test_of_few_documents_the_last_are_held_out(self, tmp_path: Path) -> None:
        texts = [f"document {number}" for number in range(50)]
        assert self.split(tmp_path / "t", *texts) == (texts[:48], texts[48:])
        assert self.split(tmp_path / "t", "one", "two") == (["one"], ["two"])

    def test_of_one_document_the_last_tenth_of_the_lines_is(self, tmp_path: Path) -> None:
        lines = [f"{number:09d}\n" for number in range(100)]
        train, validation = self.split(tmp_path / "t", "".join(lines))
        assert train == ["".join(lines[:89])]
        assert validation == ["".join(lines[89:]).rstrip("\n")]

    def test_documents_end_anywhere_in_a_line(self, tmp_path: Path) -> None:
        (tmp_path / "t").write_text("a<|endoftext|>b\nc<|endoftext|>\n\n<|endoftext|>d")
        assert list(documents(tmp_path / "t")) == ["a", "b\nc", "d"]

    def test_own_stories_come_with_all_letters_for_prompts(self) -> None:
        tokenizer = prepare(Stories(), "character").tokenizer
        assert tokenizer.encode("Zelda & the 7 foxes: JKQVX!")

    def test_own_stories_are_split(self) -> None:
        assert not set(Stories().train()) & set(Stories().validation())

    def test_bytes_that_are_no_text_are_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "t").write_bytes(10_000 * "ä line\n".encode() + b"abc\xff\xfe")
        with pytest.raises(ValueError, match="must be text in UTF-8, got other bytes at 80003"):
            list(documents(tmp_path / "t"))


class TestTokens:
    def test_both_sides_are_the_documents_and_their_ends(self, tmp_path: Path) -> None:
        (tmp_path / "train").write_text("ab<|endoftext|>ba")
        (tmp_path / "valid").write_text("c")
        data = prepare(Files(tmp_path / "train", tmp_path / "valid"), "character")
        assert data.train.tolist() == [0, 1, 3, 1, 0, 3]
        assert data.validation.tolist() == [2, 3]
        assert data.train.dtype == np.uint16

    def test_tokens_are_made_once_and_again_when_the_text_changes(self, tmp_path: Path, cache: Path) -> None:
        path = tmp_path / "t"
        path.write_text("one<|endoftext|>two")
        first = prepare(Split(path), "character")
        assert prepare(Split(path), "character").fingerprint == first.fingerprint
        assert len(list((cache / "tokens").iterdir())) == 1
        path.write_text("one<|endoftext|>three")
        assert prepare(Split(path), "character").fingerprint != first.fingerprint
        assert len(list((cache / "tokens").iterdir())) == 2

    @pytest.mark.parametrize("file", ["train.bin", "validation.bin", "tokens.json"])
    @pytest.mark.parametrize("harm", ["cut", "zeroed", "flipped", "gone", "a folder"])
    def test_a_damaged_cache_is_made_again_with_a_warning(
        self, tmp_path: Path, cache: Path, file: str, harm: str
    ) -> None:
        (tmp_path / "t").write_text("one<|endoftext|>two<|endoftext|>three")
        first = prepare(Split(tmp_path / "t"), "character")
        expected, (folder,) = (first.train.tolist(), first.validation.tolist()), (cache / "tokens").iterdir()
        content = (folder / file).read_bytes()
        (folder / file).unlink()
        if harm == "a folder":
            (folder / file).mkdir()
        elif harm != "gone":
            flipped = bytes([content[0], content[1] ^ 1]) + content[2:]
            harmed = {"cut": content[:-2], "zeroed": bytes(len(content)), "flipped": flipped}
            (folder / file).write_bytes(harmed[harm])
        with pytest.warns(UserWarning, match=f"tokens in .*{folder.name} are damaged .*; making them again"):
            again = prepare(Split(tmp_path / "t"), "character")
        assert (again.train.tolist(), again.validation.tolist()) == expected
        assert prepare(Split(tmp_path / "t"), "character").fingerprint == first.fingerprint
        assert [path.name for path in (cache / "tokens").iterdir()] == [folder.name]

    def test_tokens_that_there_are_not_are_not_believed(self, tmp_path: Path, cache: Path) -> None:
        (tmp_path / "t").write_text("one<|endoftext|>two")
        first = prepare(Split(tmp_path / "t"), "character")
        (folder,) = (cache / "tokens").iterdir()
        expected = first.train.tolist()
        np.full(4, 9999, np.uint16).tofile(folder / "train.bin")
        about = unseal((folder / "tokens.json").read_bytes())
        about["files"]["train.bin"] = sha256(folder / "train.bin")
        (folder / "tokens.json").write_text(seal(about))
        with pytest.warns(UserWarning, match="has a token 9999, but the vocabulary has"):
            assert prepare(Split(tmp_path / "t"), "character").train.tolist() == expected

    def test_what_a_killed_process_left_is_removed(self, tmp_path: Path, cache: Path) -> None:
        (tmp_path / "t").write_text("one<|endoftext|>two")
        prepare(Split(tmp_path / "t"), "character")
        (folder,) = (cache / "tokens").iterdir()
        folder.rename(folder.with_name(f"partial-{folder.name}"))
        prepare(Split(tmp_path / "t"), "character")
        assert list((cache / "tokens").iterdir()) == [folder]

    def test_another_process_that_makes_the_same_tokens_is_waited_for(self, tmp_path: Path, cache: Path) -> None:
        (tmp_path / "t").write_text("one<|endoftext|>two")
        prepare(Split(tmp_path / "t"), "character")
        (folder,) = (cache / "tokens").iterdir()
        folder.rename(tmp_path / "made elsewhere")
        with warnings.catch_warnings(record=True, action="always") as told, ThreadPoolExecutor() as pool:
            with lock(cache / "locks" / folder.name, "it"):
                waiting = pool.submit(prepare, Split(tmp_path / "t"), "character")
                time.sleep(0.2)
                assert not waiting.done()
                made = (tmp_path / "made elsewhere").rename(folder)
                before = (made / "train.bin").stat().st_mtime_ns
            assert waiting.result().train.tolist()
        assert "waiting for the cache" in str(told[0].message)
        assert (folder / "train.bin").stat().st_mtime_ns == before

    def test_batch_is_a_function_of_seed_and_step(self) -> None:
        tokens = np.arange(1000, dtype=np.uint16)

        def draw(seed: int, step: int) -> list[int]:
            return batch(tokens, 8, 5, seed=seed, step=step)[0].flatten().tolist()

        assert draw(1, 2) == draw(1, 2)
        assert draw(1, 2) != draw(1, 3)
        assert draw(1, 2) != draw(2, 2)

    def test_targets_are_the_tokens_that_follow(self) -> None:
        tokens, targets = batch(np.arange(1000, dtype=np.uint16), 8, 5, seed=0, step=0)
        torch.testing.assert_close(targets, tokens + 1)
        assert tokens.shape == (5, 8)

    def test_every_window_can_be_drawn(self) -> None:
        starts = {batch(np.arange(12, dtype=np.uint16), 8, 1, seed=0, step=step)[0][0, 0].item() for step in range(100)}
        assert starts == {0, 1, 2, 3}

    def test_windows_of_an_evaluation_do_not_overlap(self) -> None:
        tokens, _ = evaluation_windows(np.arange(1000, dtype=np.uint16), 64, most=8)
        assert len(tokens) == 8
        assert all(following[0] - window[0] >= 64 for window, following in pairwise(tokens))
        few, _ = evaluation_windows(np.arange(129, dtype=np.uint16), 64, most=8)
        assert few[:, 0].tolist() == [0, 64]


class TestDownload:
    def test_the_cache_is_the_users_unless_gomhc_cache_says_otherwise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GOMHC_CACHE", "/somewhere")
        assert cache_directory() == Path("/somewhere")
        monkeypatch.setenv("GOMHC_CACHE", "")
        if sys.platform == "linux":
            monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
            assert cache_directory() == Path("/caches/gomhc")
            monkeypatch.setenv("XDG_CACHE_HOME", "")
            assert cache_directory() == Path.home() / ".cache" / "gomhc"
        assert cache_directory().name in ("gomhc", "Cache")

    def test_file_of_the_right_content_is_kept(self, tmp_path: Path, cache: Path) -> None:
        (tmp_path / "source").write_text("content")
        remote = Remote("kept.txt", (tmp_path / "source").as_uri(), sha256(tmp_path / "source"))
        assert remote.fetch() == cache / "kept.txt"
        (tmp_path / "source").unlink()
        assert remote.fetch().read_text() == "content"

    def test_a_long_download_says_how_much_is_left(self, tmp_path: Path, cache: Path, monkeypatch, capsys) -> None:
        monkeypatch.setattr(download, "SILENCE", -1)
        monkeypatch.setattr(download, "PIECE", 500_000)
        (tmp_path / "source").write_bytes(bytes(1_500_000))
        url = (tmp_path / "source").as_uri()
        assert Remote("kept", url, sha256(tmp_path / "source")).fetch().read_bytes() == bytes(1_500_000)
        first, *others = capsys.readouterr().err.splitlines()
        assert first == f"downloading {url} (2 MB)"
        assert [line.partition(";")[0] for line in others] == ["0 of 2 MB", "1 of 2 MB", "2 of 2 MB"]
        assert others[-1].endswith("; about 0 s left")

    def test_file_of_another_content_is_not_kept(self, tmp_path: Path, cache: Path) -> None:
        (tmp_path / "source").write_text("content")
        with pytest.raises(ValueError, match=r"has SHA-256 .*, expected 0000.*; not kept"):
            Remote("kept.txt", (tmp_path / "source").as_uri(), "0" * 64).fetch()
        assert list(cache.iterdir()) == []

    def test_file_that_changed_in_the_cache_is_an_error(self, tmp_path: Path, cache: Path) -> None:
        cache.mkdir()
        (cache / "kept.txt").write_text("other")
        with pytest.raises(ValueError, match="delete it and try again"):
            Remote("kept.txt", "file:///nowhere", "0" * 64).fetch()

    @pytest.mark.parametrize("name", ["tinystories", "shakespeare"])
    def test_without_a_network_the_error_says_where_the_file_goes(
        self, monkeypatch: pytest.MonkeyPatch, cache: Path, name: str
    ) -> None:
        for proxy in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(proxy, "http://127.0.0.1:9")  # nobody listens there
        with pytest.raises(ConnectionError, match=r"cannot download .* put the file at .* gomhc train stories-tiny"):
            corpora.find(name)
        assert not [path for path in cache.rglob("*") if path.is_file()]

    @pytest.mark.skipif(not SHARED.exists(), reason="the corpora are not beside the project")
    def test_checksum_of_shakespeare_is_that_of_a_copy(self) -> None:
        assert sha256(SHARED / "tinyshakespeare.txt") == corpora.SHAKESPEARE.sha256


class TestVocabularyOnDisk:
    """A folder with a vocabulary, as GPT-2's: a token a byte and some more."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        pytest.importorskip("tiktoken", reason="needs gomhc[train]")
        self.write(tmp_path, "ab")
        return tmp_path

    def write(self, folder: Path, *pairs: str) -> None:
        words = [*tokenizers._BYTES, *pairs, "<|endoftext|>"]
        (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))

    def test_tokens_are_kept_by_the_content_of_the_vocabulary_not_its_place(self, folder: Path) -> None:
        (folder / "t").write_text("abab<|endoftext|>ab")
        first = prepare(Split(folder / "t"), str(folder))
        assert first.train.tolist() == [256, 256, 257]
        self.write(folder, "ba")
        assert prepare(Split(folder / "t"), str(folder)).train.tolist() != [256, 256, 257]
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        self.write(elsewhere, "ab")
        moved = prepare(Split(folder / "t"), str(elsewhere))
        assert moved.train.tolist() == [256, 256, 257]
        assert moved.tokenizer == BytePairTokenizer(str(elsewhere))

    def test_a_vocabulary_that_changed_is_not_taken_for_the_one_of_the_run(self, folder: Path) -> None:
        description = BytePairTokenizer(str(folder)).describe()
        assert from_description(description).encode("ab") == [256]
        self.write(folder, "ba")
        with pytest.raises(ValueError, match="has changed since this run started"):
            from_description(description).encode("ab")

    @pytest.mark.parametrize(
        "content",
        ["", "{", "[]", "{}", '{"<|endoftext|>": 0}', '{"<|endoftext|>": 0, "☃": 1}', '{"<|endoftext|>": null}'],
    )
    def test_what_is_no_vocabulary_is_told(self, folder: Path, content: str) -> None:
        (folder / "vocab.json").write_text(content)
        with pytest.raises(ValueError, match="is not GPT-2's vocabulary"):
            BytePairTokenizer(str(folder)).encode("a")
