"""From scores to classes: thresholds, class biases, mixtures and guarantees."""
