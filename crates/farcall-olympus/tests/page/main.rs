//! The page: the server's limits and refusals with raw HTTP, and the page itself in a real browser.

mod api;
mod browser;
mod http;
mod refusals;
mod restartable;
mod stand_in;
mod webdriver;
