//! Uses of one call to many servers, tested in the simulation.

mod callback;
mod first_answer;
mod member_tree;
mod register;
