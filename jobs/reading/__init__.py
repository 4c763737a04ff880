"""Published rows, read without Spark and compared with the ledger's digests."""
