"""The shipped code under virtual time and faults, and checkers that say what it promised and did not keep."""
