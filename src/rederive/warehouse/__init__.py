"""Stored views over remote relations, maintained with as few reads of the sources as possible (HU97).

`warehouse` takes the transactions of the sources, `maintenance_step` decides for each view what it needs, `selfmaint` holds the
tests of HU97, `view_storage` runs them on an engine, `sources` reads remote relations. `bridge` connects a warehouse with a
database, which then stores its views and notifies subscribers.

HU97 is: N. Huyn, "Multiple-View Self-Maintenance in Data Warehousing Environments", VLDB 1997.
"""
