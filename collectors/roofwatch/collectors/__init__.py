"""From a raw profile to records: one reader a source, then normalize, then classify."""
