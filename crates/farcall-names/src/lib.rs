//! The registry of names: which instances export a type, and where.
