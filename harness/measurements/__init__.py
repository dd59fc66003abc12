"""Results and samples of measurements: nouns that measure, tracing and report share."""
