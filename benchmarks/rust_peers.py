"""Peers in Rust: small programs over other engines, in `benchmarks/peers`, built where `cargo` is.

Their crates are named in each Cargo.toml; what cargo builds stays out of the repository.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parent / "peers"
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", Path.home() / ".cache" / "rederive-peers"))


def peers() -> list[str]:
    """The engines that can be measured here: none without cargo."""
    return sorted(path.parent.name for path in SOURCES.glob("*/Cargo.toml")) if shutil.which("cargo") else []


def build(peer: str) -> None:
    """Build the programs of a peer; this takes minutes the first time."""
    command = ["cargo", "build", "--release", "--quiet", "--manifest-path", str(SOURCES / peer / "Cargo.toml")]
    subprocess.run(command, check=True, env={**os.environ, "CARGO_TARGET_DIR": str(BUILT)})


def run(peer: str, program: str, *arguments: object) -> Iterator[tuple[str, ...]]:
    """The lines that a program prints, as words."""
    build(peer)
    command = [str(BUILT / "release" / f"{peer}-{program}"), *map(str, arguments)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return (tuple(line.split()) for line in found.stdout.splitlines())
