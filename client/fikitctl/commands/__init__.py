"""The verbs, one module for each family."""
