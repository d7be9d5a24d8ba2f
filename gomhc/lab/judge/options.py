"""What can be chosen about a judgement? All options of `gomhc judge` beside the runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from gomhc.checks import require_number, require_text, require_whole
from gomhc.lab.judge.protocol import Settings
from gomhc.lab.judge.stories import Sampling

MOST_AT_ONCE = 1000
"""Questions that can be under way at the same time."""
MOST_TRIALS = 10_000
"""How often a judge can be asked about a story."""


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How an endpoint is asked."""

    base_url: str | None = None
    """The OpenAI-compatible endpoint, such as http://127.0.0.1:8080/v1; by default OpenAI's."""
    concurrency: int = 8
    """Questions that are under way at the same time."""
    attempts: int = 6
    """How often one question is put before it is given up."""
    timeout: float = 120.0
    """Seconds after which an attempt is given up."""
    pause: float = 1.0
    """Seconds before the second attempt; doubled for each further one."""

    def __post_init__(self) -> None:
        if self.base_url is not None and not is_url(self.base_url):
            raise ValueError(f"base_url must be an address such as http://127.0.0.1:8080/v1, got {self.base_url!r}")
        require_whole("concurrency", self.concurrency, 1, MOST_AT_ONCE)
        require_whole("attempts", self.attempts, 1)
        require_number("timeout", self.timeout, above=0)
        require_number("pause", self.pause, least=0)


def is_url(text: str) -> bool:
    """Whether this is an address that can be asked: http or https, with a host, and a port that exists."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and text.isprintable()
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class Options:
    """Who judges, and where it is kept."""

    model: tuple[str, ...]
    """The judges, by the names that the endpoint knows."""
    asking: Asking = field(default_factory=Asking)
    trials: int = 3
    """How often each judge is asked about each story."""
    settings: Settings = field(default_factory=Settings)
    sampling: Sampling = field(default_factory=Sampling)
    openings: Path | None = None
    """A file of openings, one a line, instead of the 70 that come with gomhc."""
    prompts: Path | None = None
    """A directory with system.txt and user.txt instead of the prompts that come with gomhc."""
    store: Path = Path("judge.sqlite")
    """The SQLite file of stories and answers; what is in it is not asked again."""
    out: Path | None = None
    """Also write judge.md, .tex, .html and .json to this folder; if gomhc reproduce writes there, its page has them."""
    dry_run: bool = False
    """Ask nothing; say how many calls and tokens it takes, and what they cost if prices are given."""
    input_price: tuple[float, ...] = ()
    """Dollars a million tokens that a judge reads; one price for each judge."""
    output_price: tuple[float, ...] = ()
    """Dollars a million tokens that a judge writes; one price for each judge."""

    def __post_init__(self) -> None:
        if not self.model or len(set(self.model)) < len(self.model):
            raise ValueError(f"model must name at least one judge and none twice, got {self.model}")
        for name in self.model:
            require_text("model", name)
        require_whole("trials", self.trials, 1, MOST_TRIALS)
        for price in self.input_price:
            require_number("input_price", price, least=0)
        for price in self.output_price:
            require_number("output_price", price, least=0)
        numbers = {len(self.input_price), len(self.output_price)}
        if numbers not in ({0}, {len(self.model)}):
            raise ValueError(
                f"input_price and output_price must each have a price for each of {len(self.model)} judges, "
                f"got {len(self.input_price)} and {len(self.output_price)}"
            )

    def prices(self, judge: str) -> tuple[float, float] | None:
        """What a million tokens cost in and out; None if no prices are given."""
        which = self.model.index(judge)
        return (self.input_price[which], self.output_price[which]) if self.input_price else None
