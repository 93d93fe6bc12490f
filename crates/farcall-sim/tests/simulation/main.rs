//! Tests in the simulated network: the driver, users' programs, segments, groups, ONC RPC and Courier.
#![allow(missing_docs)]

mod balanced;
mod bank;
mod bytes_in_time;
#[cfg(target_os = "linux")]
mod courier;
#[cfg(unix)]
mod courier_cooper;
#[cfg(unix)]
mod courier_expedited;
mod crowds;
mod deadlines;
mod driver;
mod first_calls;
#[cfg(feature = "soak")]
mod flood;
#[cfg(all(feature = "soak", target_os = "linux"))]
mod grants;
mod hung_members;
mod inside_calls;
#[cfg(all(feature = "soak", target_os = "linux"))]
mod keyed_clerks;
mod large_results;
mod long_run;
#[cfg(feature = "soak")]
mod lost_names;
mod lost_rights;
#[cfg(target_os = "linux")]
mod moved_servers;
mod name_clerk;
mod nearest_server;
#[cfg(target_os = "linux")]
mod olympus;
#[cfg(target_os = "linux")]
mod onc;
mod oneway;
mod orders;
#[cfg(feature = "soak")]
mod restarts;
mod segments;
mod silent_members;
mod slow_handlers;
#[cfg(target_os = "linux")]
mod slow_procedures;
mod slow_router;
#[cfg(feature = "soak")]
mod soak;
mod started_calls;
mod stopped_callers;
mod stopped_groups;
mod user_programs;
mod waiting_calls;
mod withdrawn_rights;
