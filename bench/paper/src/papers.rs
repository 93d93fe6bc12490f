//! The papers: what is run for each, and what its tables and figures are made of.

mod birrell;
mod elliott;
mod larus;
mod satyanarayanan;
mod thekkath;

use anyhow::Result;
use clap::ValueEnum;
use farcall_bench_method::paper::Item;
use serde::Serialize;

use crate::run::{Found, Step};

/// The short names of the papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Name {
    /// Cedar RPC, 1984.
    Birrell,
    /// Courier, 1983.
    Larus,
    /// Sun RPC, 1989.
    Elliott,
    /// RPC2 and MultiRPC, 1990.
    Satyanarayanan,
    /// Remote memory, 1994.
    Thekkath,
}

/// A paper.
#[derive(Serialize)]
pub struct Paper {
    #[serde(skip)]
    pub name: Name,
    /// Its name in links and files.
    pub key: &'static str,
    pub title: &'static str,
    pub authors: &'static str,
    pub year: u16,
    pub published: &'static str,
    /// What it is about, in a few sentences.
    pub about: &'static str,
    /// What is run.
    #[serde(skip)]
    pub steps: &'static [Step],
    /// Returns its tables and figures from what the steps have found.
    #[serde(skip)]
    pub items: fn(&[Result<Found>]) -> Vec<Item>,
}

/// All papers, in the order of the report.
pub const PAPERS: &[Paper] =
    &[birrell::PAPER, larus::PAPER, elliott::PAPER, satyanarayanan::PAPER, thekkath::PAPER];

/// Returns all tables and figures that programs have written themselves, those of the steps in their order.
fn as_written(found: &[Result<Found>]) -> Vec<Item> {
    found.iter().flatten().flat_map(|found| found.items.clone()).collect()
}

/// Says below the last of the tables of these numbers what was found and what was changed.
fn say(items: &mut [Item], numbers: &[&str], finding: &str, changed: &str) {
    let last = items.iter_mut().map(Item::about_mut).rfind(|about| numbers.contains(&&about.number[..]));
    if let Some(about) = last {
        finding.clone_into(&mut about.finding);
        changed.clone_into(&mut about.changed);
    }
}
