"""Tables in, `Queries` out, wherever the rows live: readers, columns, groups, splits, digests."""
