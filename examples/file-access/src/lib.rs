//! FileAccess: the interface that the examples, the demo and the command share.
