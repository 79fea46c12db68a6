//! Exact quantiles, histograms, time-weighted means.
