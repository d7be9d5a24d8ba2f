"""What does a page look like to a browser? Headless Chromium opens it, and a script at its end tells."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

POLICY = "default-src 'none';"
"""Of the page itself: whatever it asks for elsewhere is refused, and the refusal is heard."""

LISTENER = """<script>
const refused = [];
addEventListener("securitypolicyviolation", event => refused.push(event.blockedURI));
</script>"""

PROBE = """<script>
addEventListener("load", () => {
  const box = element => element.getBoundingClientRect();
  const links = [...document.querySelectorAll("a[href]")].map(link => link.getAttribute("href"));
  const ids = [...document.querySelectorAll("[id]")].map(element => element.id);
  const seen = {
    figures: [...document.querySelectorAll("figure")].map(figure => [figure.id, box(figure).width, box(figure).height]),
    plots: [...document.querySelectorAll(".plot > *")].map(plot => [plot.tagName, box(plot).width, box(plot).height]),
    rows: [...document.querySelectorAll("tbody tr")].filter(row => box(row).height > 0).map(row => row.id),
    links: links,
    broken: links.filter(link => !(link.startsWith("#") && document.getElementById(link.slice(1)))),
    twice: ids.filter((id, index) => ids.indexOf(id) != index),
    refused: refused,
    overflow: document.documentElement.scrollWidth - innerWidth,
    background: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color,
  };
  const said = document.createElement("script");
  said.type = "application/json"; said.id = "seen"; said.textContent = JSON.stringify(seen);
  document.body.append(said);
});
</script>"""


def open_page(html: str, folder: Path, *, width: int = 1200, dark: bool = False) -> dict[str, Any]:
    """What the probe saw, and under `console` what the browser complained of."""
    file = folder / f"probed-{width}-{'dark' if dark else 'light'}.html"
    assert POLICY in html
    allowed = html.replace(POLICY, f"{POLICY} script-src 'unsafe-inline';")
    file.write_text(allowed.replace("</head>", f"{LISTENER}</head>") + PROBE, encoding="utf-8")
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom",
        f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=5000",
        f"--window-size={width},900", f"--blink-settings=preferredColorScheme={0 if dark else 1}", file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    seen = re.search(r'<script type="application/json" id="seen">(.*?)</script>', done.stdout, re.DOTALL)
    assert seen, done.stderr
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return {**json.loads(seen[1]), "console": console}


def assert_sound(seen: dict[str, Any]) -> None:
    """No complaint, every figure visible, every link leads somewhere on the page, nothing asked for elsewhere."""
    assert seen["console"] == []
    assert seen["refused"] == []
    assert seen["broken"] == []
    assert seen["twice"] == []
    assert seen["links"]
    assert all(width > 50 and height > 20 for _, width, height in seen["figures"]), seen["figures"]
    assert all(tag.lower() == "svg" and width > 200 and height > 80 for tag, width, height in seen["plots"])
