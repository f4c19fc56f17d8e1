"""The picture of the trade-off: one panel for each program, one labelled point for each strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # files only: no display is needed

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.report import Unit, shown

COLOURS = {
    "recompute": "#777777",
    "on_demand": "#0072b2",
    "filtration": "#009e73",
    "differencing": "#cc79a7",
    "counting": "#e69f00",
    "materialized": "#d55e00",
}
LABEL_HEIGHT = 0.075  # of a panel's height: labels closer than this would touch

Place = tuple[float, float]  # megabytes, seconds


def draw(panels: Mapping[str, Mapping[str, Place]], path: Path) -> None:
    """Time over memory, with one scale of time for all panels."""
    figure = Figure(figsize=(13, 4.8), dpi=150, layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    times = [seconds for places in panels.values() for _, seconds in places.values()]
    low, high = min(times) / 2.5, max(times) * 2.5
    for axis, (title, places) in zip(axes, panels.items(), strict=True):
        _panel(axis, title, places, (low, high))
    axes[0].set_ylabel("median one-row transaction")
    figure.supxlabel("MB kept between transactions beyond the base rows (views, counts, indexes, compiled rules)", fontsize=10)
    figure.suptitle("Time against memory, by strategy: lower left is better", fontsize=12)
    figure.savefig(path, metadata={"Software": None})


def _panel(axis: Axes, title: str, places: Mapping[str, Place], limits: tuple[float, float]) -> None:
    axis.set_title(title, fontsize=11)
    axis.set_yscale("log")
    axis.set_ylim(*limits)
    widest = max(megabytes for megabytes, _ in places.values())
    axis.set_xlim(0, widest * 1.08)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: shown(seconds, Unit.SECONDS)))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.grid(visible=True, which="major", color="#dddddd", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    for right in (False, True):
        chosen = {name: place for name, place in places.items() if (place[0] > 0.55 * widest) is right}
        _label(axis, chosen, limits, widest * (-0.05 if right else 0.05))


def _label(axis: Axes, places: Mapping[str, Place], limits: tuple[float, float], aside: float) -> None:
    """Points of one part of a panel, each labelled towards the middle, at heights where no label touches another."""
    names = sorted(places, key=lambda name: places[name][1])
    low, high = map(log10, limits)
    heights = spread([(log10(places[name][1]) - low) / (high - low) for name in names], LABEL_HEIGHT)
    for name, height in zip(names, heights, strict=True):
        x, y = places[name]
        axis.plot(x, y, "o", color=COLOURS[name], markersize=8, zorder=3)
        axis.annotate(
            f"{name}  {shown(y, Unit.SECONDS)}",
            (x, y),
            (x + aside, 10 ** (low + height * (high - low))),
            color=COLOURS[name],
            fontsize=9,
            ha="right" if aside < 0 else "left",
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            arrowprops={
                "arrowstyle": "-",
                "color": COLOURS[name],
                "linewidth": 0.8,
                "shrinkA": 0,
                "shrinkB": 3,
                "relpos": (1 if aside < 0 else 0, 0.5),  # the line starts at the label's near end
            },
        )


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """The same heights in the same order, moved apart where they are closer than the gap; neighbours keep their common middle.

    >>> [round(height, 2) for height in spread([0.1, 0.5, 0.52, 0.9], gap=0.1)]
    [0.1, 0.46, 0.56, 0.9]
    """
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _first(groups[-1], gap) - _last(groups[-2], gap) < gap:
            last = groups.pop()
            groups[-1] += last
    return [_first(group, gap) + i * gap for group in groups for i in range(len(group))]


def _first(group: Sequence[float], gap: float) -> float:
    """The lowest place of a group that stands around its middle."""
    return sum(group) / len(group) - gap * (len(group) - 1) / 2


def _last(group: Sequence[float], gap: float) -> float:
    return _first(group, gap) + gap * (len(group) - 1)
