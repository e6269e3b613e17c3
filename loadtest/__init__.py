"""Hourly peaks, verified; benchmarks."""
