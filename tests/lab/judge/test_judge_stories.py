"""Stories are sampled once, with fixed seeds, and end where the text ends."""

from __future__ import annotations

import pytest
import torch

from gomhc.lab.data.tokenizers import CharacterTokenizer
from gomhc.lab.judge import evaluation
from gomhc.lab.judge.answer_store import AnswerStore
from gomhc.lab.judge.stories import Sampling, Story, load_openings, sample, weights_key
from gomhc.models import GPT, GPTConfig

OPENINGS = ["ab", "cd", "abc", "d", "bad"]


LETTERS = CharacterTokenizer("abcdefg", has_end=True)
ENDLESS = CharacterTokenizer("abcdefgh", has_end=False)


def model(seed=0):
    config = GPTConfig(num_layers=1, num_heads=2, num_channels=16, context_length=12, vocab_size=8)
    return GPT(config, torch.Generator().manual_seed(seed)).eval()


def drawn(sampling=Sampling(story_tokens=20), openings=OPENINGS, seed=0, tokenizer=LETTERS):  # noqa: B008
    return list(sample(model(seed), tokenizer, openings, sampling))


@pytest.fixture
def store(tmp_path):
    with AnswerStore(tmp_path / "judge.sqlite") as store:
        yield store


def test_every_opening_gets_a_story_and_the_same_one_each_time():
    stories = drawn()
    assert {story.opening for story in stories} == set(OPENINGS)
    assert stories == drawn()
    assert len({story.completion for story in stories}) > 1


@pytest.mark.parametrize(
    "other",
    [
        Sampling(story_tokens=20, seed=1),
        Sampling(story_tokens=20, top_k=1),
        Sampling(story_tokens=20, story_temperature=5.0),
        Sampling(story_tokens=1),
    ],
)
def test_stories_depend_on_every_option_of_the_sampling_and_so_does_their_key(other):
    assert drawn(other) != drawn()
    assert other.key(OPENINGS) != Sampling(story_tokens=20).key(OPENINGS)


def test_a_story_stops_where_the_text_ends():
    stories = drawn(Sampling(story_tokens=60))
    assert all(set(story.completion) <= set("abcdefg") for story in stories)
    assert any(len(story.completion) < 60 for story in stories)
    assert all(len(story.completion) == 60 for story in drawn(Sampling(story_tokens=60), tokenizer=ENDLESS))


def test_a_batch_of_openings_of_equal_length_is_what_the_model_says_of_each():
    greedy = Sampling(story_tokens=8, story_temperature=0)
    together = {story.opening: story for story in drawn(greedy)}
    for opening in OPENINGS:
        assert drawn(greedy, [opening]) == [together[opening]]


def test_stories_are_sampled_once_and_again_only_from_other_weights(store, tmp_path, monkeypatch):
    loaded, sampled = [0], []

    def sample_and_count(*arguments):
        sampled.append(1)
        return sample(*arguments)

    monkeypatch.setattr(evaluation, "load_model", lambda run: (model(loaded[0]), LETTERS))
    monkeypatch.setattr(evaluation, "sample", sample_and_count)
    sampling = Sampling(story_tokens=10)
    first = evaluation.stories_of(tmp_path, OPENINGS, sampling, store)
    assert [story.opening for story in first] == OPENINGS
    assert evaluation.stories_of(tmp_path, OPENINGS, sampling, store) == first
    assert len(sampled) == 1
    loaded[0] = 1  # trained further, in the same place
    assert evaluation.stories_of(tmp_path, OPENINGS, sampling, store) != first
    assert len(sampled) == 2
    evaluation.stories_of(tmp_path, OPENINGS[:2], sampling, store)
    assert len(sampled) == 3


def test_an_interrupted_sampling_keeps_nothing(store, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "load_model", lambda run: (model(), LETTERS))
    sampling = Sampling(story_tokens=10)

    def interrupt(stories):
        yield next(stories)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluation.stories_of(tmp_path, OPENINGS, sampling, store, interrupt)
    assert store.stories(weights_key(model()), sampling.key(OPENINGS)) == []
    whole = evaluation.stories_of(tmp_path, OPENINGS, sampling, store)
    assert set(whole) == set(drawn(sampling))


def test_weights_have_one_key_whatever_their_dtype():
    assert weights_key(model()) == weights_key(model())
    assert weights_key(model()) != weights_key(model(1))
    assert weights_key(model().bfloat16()) != weights_key(model())


def test_stories_differ_if_opening_or_completion_does():
    assert len({story.key for story in (Story("a", "b"), Story("ab", ""), Story("", "ab"), Story("a", "c"))}) == 4


@pytest.mark.parametrize("text", ["", "\n\n", "one\ntwo\none\n"])
def test_openings_must_be_there_and_be_different(text, tmp_path):
    (tmp_path / "openings.txt").write_text(text)
    with pytest.raises(ValueError, match="at least one opening, and no opening twice"):
        load_openings(tmp_path / "openings.txt")


def test_sampling_that_makes_no_sense_is_an_error():
    for wrong in ({"story_tokens": 0}, {"top_k": 0}, {"story_temperature": -1.0}):
        with pytest.raises(ValueError, match=r"must be a .*number.* at least"):
            Sampling(**wrong)
