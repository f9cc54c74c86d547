"""Packages laid out as pip installs them, so that their entry points are found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(site: Path, entry_points: str, files: Mapping[str, str]) -> None:
    """Writes the package `alpaca` into the folder `site`, which a path of imports names.

    Args:
        site: the folder.
        entry_points: the text of its entry_points.txt.
        files: further files, by their paths in `site`.
    """
    metadata = {
        "alpaca-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: alpaca\nVersion: 1.0\n",
        "alpaca-1.0.dist-info/entry_points.txt": entry_points,
    }
    for name, text in {**files, **metadata}.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
