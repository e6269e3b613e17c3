"""Due occurrences out to Kafka."""
