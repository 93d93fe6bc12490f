//! Whether a group's members stay the same: a marker type for each case.

/// Of a [`Group`](crate::Group): its members are those that the registry knows when it is called.
#[derive(Clone, Copy, Debug)]
pub enum Living {}

/// Of a [`Group`](crate::Group): its members are always the same.
#[derive(Clone, Copy, Debug)]
pub enum Fixed {}
