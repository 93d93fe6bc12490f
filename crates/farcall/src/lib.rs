//! Remote procedure calls: one interface, any number of servers, truthful about failures.
