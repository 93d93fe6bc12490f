//! Tests of the transcoder between XDR bytes and Courier's words.

mod model;
mod random;
mod refusals;
mod stream_of;
mod values;
