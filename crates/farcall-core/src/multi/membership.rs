//! Marker types that say whether a group's members stay the same.

/// Marks a [`Group`](crate::Group) whose members are looked up in the registry at each call.
#[derive(Clone, Copy, Debug)]
pub enum Living {}

/// Marks a [`Group`](crate::Group) whose members never change.
#[derive(Clone, Copy, Debug)]
pub enum Fixed {}
