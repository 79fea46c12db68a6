//! Reader and writer of the canonical trace: CSV, plain, .gz or .zst.
