//! Tests the exchange of graphs with other tools by PNML.
#![allow(missing_docs)]

mod hostile;
mod other_tools;
mod round_trip;
