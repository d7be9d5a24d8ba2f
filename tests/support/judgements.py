"""Judgements that no judge has made: scores drawn at random, later models better, names hard to write."""

from __future__ import annotations

import numpy as np

from gomhc.lab.judge.judgement import Judgement


def judgement(models=("plain", "go_s=2 & co"), judges=("judge <a>", "b|c"), openings=12, trials=3, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    shape = (len(judges), len(models), openings, trials, 3)
    stories = rng.normal(size=(1, *shape[1:3], 1, 3)) + np.arange(len(models))[None, :, None, None, None]
    scores = np.clip(np.round(5 + stories + 0.5 * rng.normal(size=shape)), 1, 10)
    gone = rng.random(shape[:-1]) < missing
    scores[gone] = np.nan
    reasons = tuple({"refused": int(count)} if count else {} for count in gone.sum(axis=(1, 2, 3)))
    names = tuple(f"Opening {n}" for n in range(openings))
    written = np.ones(shape[1:3], dtype=bool)
    return Judgement(judges=judges, models=models, openings=names, scores=scores, written=written, reasons=reasons)
