"""What a pair is, and sums over pairs: by item, and by cell (k, l) of groups."""
