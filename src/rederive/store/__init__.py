"""What a database keeps on disk: journal, codec, backups, and the lake that follows the journal."""
