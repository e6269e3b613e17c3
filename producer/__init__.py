"""Schedules in: the schedulers, and the insert rule every writer follows."""
