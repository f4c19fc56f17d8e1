"""`Database` is a facade: few names, and whatever belongs together is one object of it."""

from __future__ import annotations

import rederive
from tools.check_shape import MOST_PUBLIC_NAMES, public_names


def test_the_facade_is_small() -> None:
    names = public_names(rederive.Database)
    assert len(names) <= MOST_PUBLIC_NAMES, f"{len(names)} names, move some to an object such as `db.definitions`: {names}"


def test_the_objects_of_the_facade() -> None:
    db = rederive.open()
    objects = set(public_names(db)) - set(public_names(rederive.Database))
    assert objects == {"definitions", "pipeline", "rules", "tables"}
