"""Helpers that know nothing of ranking: files, threads, progress, text, HTML, JSON."""
