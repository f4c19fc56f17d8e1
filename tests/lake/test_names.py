"""Names of folders: no two relations share one, on whatever file system."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from rederive.lake.names import folder_name

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)


@given(st.sets(NAMES, max_size=20))
@example({"Edge", "edge", "-45dge", "_x", "x", "deg.count1", "deg-2ecount1"})
@example({"v" * 400, "v" * 401, "é" * 100})
def test_no_two_names_share_a_folder(names: set[str]) -> None:
    folders = {folder_name(name) for name in names}
    assert len({folder.lower() for folder in folders}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9-][a-z0-9_-]{0,149}", folder) for folder in folders)
