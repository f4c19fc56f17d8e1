"""What a database holds on disk. Read in this order:

journal/          the SQLite file: one synced transaction for each version
codec             rows, columns and digests as the journal writes them
store             the store of a database: journal and lake, recorded deltas, and changes as subscribers see them
recovery          what opening a store does; lake_recovery: with its lake
checkpoint        the state of an engine at one version, so that opening need not evaluate views
lake_sync         the lake follows the journal
time_travel       a view as of an earlier version
backup            backups, and stores restored from them
position          a version of an epoch, from which a client resumes
"""
