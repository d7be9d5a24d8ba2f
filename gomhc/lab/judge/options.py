"""The options of `gomhc judge`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from gomhc.checks import require_number, require_text, require_whole
from gomhc.lab.judge.protocol import Settings
from gomhc.lab.judge.stories import Sampling

MOST_AT_ONCE = 1000
"""Maximum number of concurrent requests."""
MOST_TRIALS = 10_000
"""Maximum number of trials."""


@dataclass(frozen=True, kw_only=True)
class Asking:
    """The endpoint, and how it is asked."""

    base_url: str | None = None
    """URL of the OpenAI-compatible endpoint, such as http://127.0.0.1:8080/v1; by default OpenAI's."""
    concurrency: int = 8
    """Number of concurrent requests."""
    attempts: int = 6
    """Maximum number of attempts per question."""
    timeout: float = 120.0
    """Seconds after which an attempt fails."""
    pause: float = 1.0
    """Seconds before the second attempt; doubled for each further attempt."""

    def __post_init__(self) -> None:
        if self.base_url is not None and not is_url(self.base_url):
            raise ValueError(f"base_url must be a URL such as http://127.0.0.1:8080/v1, got {self.base_url!r}")
        require_whole("concurrency", self.concurrency, 1, MOST_AT_ONCE)
        require_whole("attempts", self.attempts, 1)
        require_number("timeout", self.timeout, above=0)
        require_number("pause", self.pause, least=0)


def is_url(text: str) -> bool:
    """Return whether this is a usable URL: http or https, with a host and a valid port."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and text.isprintable()
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class Options:
    """The judges, what they are asked, and where the answers are stored."""

    model: tuple[str, ...]
    """Names of the judges at the endpoint."""
    asking: Asking = field(default_factory=Asking)
    trials: int = 3
    """Number of times that each judge scores each story."""
    settings: Settings = field(default_factory=Settings)
    sampling: Sampling = field(default_factory=Sampling)
    openings: Path | None = None
    """File of openings, one per line, instead of the 70 that come with gomhc."""
    prompts: Path | None = None
    """Folder with system.txt and user.txt, instead of the prompts that come with gomhc."""
    store: Path = Path("judge.sqlite")
    """SQLite file of stories and answers; questions that it already answers are not asked again."""
    out: Path | None = None
    """Folder for judge.md, judge.tex, judge.html and judge.json; gomhc reproduce with the same --out shows them."""
    dry_run: bool = False
    """Ask nothing; print the number of calls and tokens, and their cost if prices are given."""
    input_price: tuple[float, ...] = ()
    """Dollars per million input tokens; one price for each judge."""
    output_price: tuple[float, ...] = ()
    """Dollars per million output tokens; one price for each judge."""

    def __post_init__(self) -> None:
        if not self.model or len(set(self.model)) < len(self.model):
            raise ValueError(f"model must name at least one judge, and no judge twice, got {self.model}")
        for name in self.model:
            require_text("model", name)
        require_whole("trials", self.trials, 1, MOST_TRIALS)
        for price in self.input_price:
            require_number("input_price", price, least=0)
        for price in self.output_price:
            require_number("output_price", price, least=0)
        num_prices = {len(self.input_price), len(self.output_price)}
        if num_prices not in ({0}, {len(self.model)}):
            raise ValueError(
                f"input_price and output_price must have one price for each of the {len(self.model)} judges, "
                f"got {len(self.input_price)} and {len(self.output_price)}"
            )

    def prices(self, judge: str) -> tuple[float, float] | None:
        """Return the prices of a million input and output tokens, or None if no prices are given."""
        index = self.model.index(judge)
        return (self.input_price[index], self.output_price[index]) if self.input_price else None
