"""The tocsin command and everything a fleet is run with."""
