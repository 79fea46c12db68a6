//! Importer of the weka format.
