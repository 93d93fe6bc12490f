//! `.x` files (RFC 4506 section 6, RFC 5531 section 12): from text to a resolved tree, and from the tree to stubs.

pub mod tree;
