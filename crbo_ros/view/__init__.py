"""What anybody looks at: a run as a model, from a store or from topics."""
