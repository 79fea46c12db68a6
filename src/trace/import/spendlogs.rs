//! Importer of the spendlogs format.
