"""Other ways to rank more evenly, each a function that returns a `Method`."""
