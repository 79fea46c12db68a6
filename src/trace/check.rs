//! The rules that every trace keeps, checked one session at a time.
