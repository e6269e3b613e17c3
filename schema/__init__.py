"""What a schedule means and how it is stored: recurrence, records, levels, and the stores."""
