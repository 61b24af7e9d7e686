"""One self-contained HTML page about models, and the evidence that it shows."""
