"""The steps from runs to scores: stories of each run, questions about them, and the judgement of the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from gomhc.lab.judge.answer_store import AnswerStore, Question
from gomhc.lab.judge.answers import CRITERIA
from gomhc.lab.judge.judgement import Judgement
from gomhc.lab.judge.stories import Sampling, Story, load_model, read_stories, sample, weights_key


def labels(runs: Sequence[Path]) -> list[str]:
    """Return a name for each run: that of its folder or file, or its whole path where two have the same name."""
    names = [run.resolve().stem if run.is_file() else run.resolve().name for run in runs]
    unique = [name if names.count(name) == 1 else str(run) for name, run in zip(names, runs, strict=True)]
    if len(set(unique)) < len(unique):
        raise ValueError(f"runs must be different, got one twice: {', '.join(str(run) for run in runs)}")
    return unique


def stories_of(
    run: Path,
    openings: Sequence[str],
    sampling: Sampling,
    store: AnswerStore,
    watch: Callable[[Iterator[Story]], Iterator[Story]] = iter,
) -> list[Story]:
    """Return the stories of a run, sampled once and then stored, or those of a file; `watch` wraps the sampling."""
    if run.is_file():
        return read_stories(run)
    model, tokenizer = load_model(run)
    keys = weights_key(model), sampling.key(openings)
    if not store.stories(*keys):
        store.keep_stories(*keys, list(watch(sample(model, tokenizer, openings, sampling))))
    written = {story.opening: story for story in store.stories(*keys)}
    return [written[opening] for opening in openings]


def all_questions(
    models: Mapping[str, Sequence[Story]], judges: Sequence[str], trials: int, protocol: str
) -> list[Question]:
    """Return every trial of every judge on every story; models that wrote the same story share its answers."""
    stories = {story.key: story for written in models.values() for story in written}.values()
    return [Question(judge, protocol, story, trial) for trial in range(trials) for judge in judges for story in stories]


def judgement(
    models: Mapping[str, Sequence[Story]], judges: Sequence[str], trials: int, protocol: str, store: AnswerStore
) -> Judgement:
    """Collect all scores in the store, and the reasons why others are missing."""
    openings = list(dict.fromkeys(story.opening for written in models.values() for story in written))
    scores = np.full((len(judges), len(models), len(openings), trials, len(CRITERIA)), np.nan)
    written = np.zeros((len(models), len(openings)), dtype=bool)
    reasons: list[Counter[str]] = [Counter() for _ in judges]
    for m, stories in enumerate(models.values()):
        for story in stories:
            o = openings.index(story.opening)
            written[m, o] = True
            for j, judge in enumerate(judges):
                for trial in range(trials):
                    answer = store.answer(Question(judge, protocol, story, trial))
                    if answer is not None and answer.scores is not None:
                        scores[j, m, o, trial] = answer.scores
                    else:
                        reasons[j]["no answer yet" if answer is None else str(answer.missing)] += 1
    return Judgement(
        judges=tuple(judges),
        models=tuple(models),
        openings=tuple(openings),
        scores=scores,
        written=written,
        reasons=tuple(dict(counts) for counts in reasons),
    )
