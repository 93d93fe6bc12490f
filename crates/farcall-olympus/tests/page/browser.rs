//! The page in a real browser.

use farcall_olympus::model::Graph;
use farcall_olympus::page::{Failure, Settings};

use crate::stand_in::StandIn;
use crate::webdriver::Browser;

/// Starts a browser, or says that the test is skipped.
fn browser(test: &str) -> Option<Browser> {
    match Browser::start() {
        Ok(browser) => Some(browser),
        Err(why) => {
            println!("skipped: {test}: {why}");
            None
        }
    }
}

fn pictures() -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("olympus-page");
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn looks() {
    let Some(browser) = browser("looks") else { return };
    let graph: Graph = serde_json::from_str(include_str!("pipeline.json")).unwrap();
    let (run, page) = StandIn::serve(graph, Settings::default());
    browser.size(1280, 800, false);
    browser.open(&page.url());
    browser.until("olympus.graph.items.size > 4");
    browser.until("olympus.live.last != null");
    run.change(|changes| {
        changes.active = [("compile".into(), 2)].into();
        changes.marking.insert("sources".into(), 3);
        changes.marking.insert("passed".into(), 142);
        changes.per_second = 1234.5;
        changes.ended = 20_311;
        changes.failed = 1;
        changes.stopped = Some(vec![Failure {
            firing: 7,
            node: "publish".into(),
            error: "call failed: no answer within 30 s; it is not known whether the procedure ran".into(),
        }]);
    });
    browser.until("olympus.live.failures.length == 1");
    let path = |name: &str| pictures().join(name).display().to_string();
    browser.picture(1280, 800, false, &path("wide-light.png"));
    browser.picture(1280, 800, true, &path("wide-dark.png"));
    browser.run("olympus.editor.select(['compile'])");
    browser.picture(1280, 800, false, &path("wide-light-node.png"));
    browser.picture(400, 800, false, &path("narrow-light-node.png"));
    browser.run("olympus.editor.select(['sources']); olympus.canvas.fit()");
    browser.picture(400, 800, true, &path("narrow-dark-place.png"));
    browser.run("olympus.editor.select([])");
    browser.picture(400, 800, false, &path("narrow-light.png"));
    browser.run("document.getElementById('stage').focus()");
    browser.keys(&["f"]);
    browser.until("document.getElementById('firing').open");
    browser.picture(1280, 800, false, &path("wide-light-failure.png"));
    browser.picture(400, 800, true, &path("narrow-dark-failure.png"));
    browser.keys(&["\u{E00C}", "?"]);
    browser.picture(1280, 800, false, &path("wide-light-keys.png"));
    browser.keys(&["\u{E00C}"]);
    browser.run("olympus.editor.select(['fetch'])");
    browser.press("[data-field=pick]");
    browser.until("document.querySelectorAll('#exports-list button').length > 0");
    browser.picture(1280, 800, true, &path("wide-dark-pick.png"));
}
