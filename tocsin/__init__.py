"""Tocsin: a scheduler for billions of schedules, on Cassandra and Kafka."""
