//! External Data Representation (RFC 4506).
