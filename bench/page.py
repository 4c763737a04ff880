"""The page `docs/explanation/benchmarks.md` and its plots, made from the results alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES: Final = Path(__file__).parent / "templates"
PLOTS: Final = "benchmarks"
WIDTH: Final = 760
LABEL_WIDTH: Final = 210
ROW_HEIGHT: Final = 26
TOP: Final = 34
BAR_SPACE: Final = WIDTH - LABEL_WIDTH - 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row of a plot, in pixels. `is_ours` chooses the colour."""

    title: str
    text: str
    y: float
    width: float
    least: float
    greatest: float
    is_ours: bool


def pages(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of the page by their path below `docs/`."""
    environment = templates()
    plots = {
        f"{PLOTS}/{contest['name']}.svg": plot(environment, contest)
        for contest in results["contests"]
        if any(not entry["missing"] for entry in contest["entries"])
    }
    text = environment.get_template("benchmarks.md.j2").render(
        results=results, plots=plots, profiles=list(profiles(results))
    )
    return {"explanation/benchmarks.md": text, **plots}


def templates() -> Environment:
    """Return the templates of pages and plots. A page is Markdown, so only `escaped` escapes: the texts of a plot."""
    environment = Environment(  # noqa: S701
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "spread": spread, "escaped": escaped}
    return environment


def plot(environment: Environment, contest: Mapping[str, Any]) -> str:
    """Return the SVG of a contest: one bar for each contestant, and a line from the least to the greatest round."""
    found = bars(contest)
    return environment.get_template("plot.svg.j2").render(
        title=contest["title"],
        unit="CPU seconds" if contest["measure"] == "cpu_s" else "seconds",
        bars=found,
        width=WIDTH,
        height=TOP + ROW_HEIGHT * len(found) + 12,
        label_width=LABEL_WIDTH,
        row_height=ROW_HEIGHT,
    )


def bars(contest: Mapping[str, Any]) -> list[Bar]:
    """Return the rows of a plot; the longest bar, with its greatest round, fills the space."""
    measured = [entry for entry in contest["entries"] if not entry["missing"]]
    spreads = [entry[contest["measure"]] for entry in measured]
    scale = BAR_SPACE / max(*(one["greatest"] for one in spreads), 1e-9)
    return [
        Bar(
            title=entry["title"],
            text=f"{number(one['median'])} s",
            y=TOP + ROW_HEIGHT * place,
            width=round(one["median"] * scale, 1),
            least=round(one["least"] * scale, 1),
            greatest=round(one["greatest"] * scale, 1),
            is_ours=place == 0,
        )
        for place, (entry, one) in enumerate(zip(measured, spreads, strict=True))
    ]


def profiles(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield where the seconds of replays go: by stage, by process, and by kind of thread in the JVM."""
    for contest in results["contests"]:
        for entry in contest["entries"]:
            notes = entry.get("notes", {})
            if "stages" in notes:
                stages = notes["stages"]
                rows = [(name, wall_s, stages["cpu_s"].get(name, 0.0)) for name, wall_s in stages["wall_s"].items()]
                parts = [
                    (kind, name, seconds)
                    for kind in ("process", "jvm_thread")
                    for name, seconds in notes.get(f"cpu_s_by_{kind}", {}).items()
                ]
                yield {
                    "title": contest["title"], "who": entry["title"], "stages": rows, "parts": parts,
                    "scratch_mb": notes.get("scratch_mb"),
                }  # fmt: skip


def number(value: float | None) -> str:
    """Return a number with three digits that count."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 1 or value == 0 else f"{value:.3g}"


def spread(found: Mapping[str, float]) -> str:
    """Return a median with its least and greatest value."""
    return f"{number(found['median'])} ({number(found['least'])} to {number(found['greatest'])})"


def escaped(text: str) -> str:
    """Return a text for an SVG."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
