//! Scenario files and the catalogue of GPUs and models.
