//! What one call to many servers is for, tested in the simulation.

mod callback;
mod first_answer;
mod member_tree;
mod register;
