"""Many methods, settings and seeds, measured alike: sweeps, frontiers, tuning."""
