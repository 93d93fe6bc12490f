//! The users' simulation: unchanged programs, one thread running at a time, in the simulated network.
