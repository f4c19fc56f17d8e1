"""The action of SR's rule: `order(i, max_stock(i) - quantity(i))`, computed in the state after the transaction."""

from pathlib import Path
from typing import Any


def order_items(rows: list[tuple[str]], new: Any) -> None:
    with Path("orders.txt").open("a") as file:
        for (item,) in rows:
            ((_, most),) = new.rows("max_stock", item=item)
            ((_, there),) = new.rows("quantity", item=item)
            file.write(f"order {most - there} of {item}\n")
