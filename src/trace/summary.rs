//! Statistics of a trace: counts, percentiles, ratios, gaps, cache hits by size.
