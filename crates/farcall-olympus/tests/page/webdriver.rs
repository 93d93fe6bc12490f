//! A browser that a test drives, by the WebDriver protocol of `chromedriver`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

/// A browser with one tab.
pub struct Browser {
    driver: Child,
    session: String,
    http: ureq::Agent,
}

/// The name by which WebDriver refers to elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

impl Browser {
    /// Starts a browser, or says why there is none.
    pub fn start() -> Result<Browser, String> {
        let chromium =
            ["chromium", "chromium-browser", "google-chrome"].iter().find_map(|name| on_path(name));
        let chromium = chromium.ok_or("there is no chromium")?;
        let mut driver = Command::new("chromedriver")
            .args(["--port=0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("chromedriver: {error}"))?;
        let lines = BufReader::new(driver.stdout.take().ok_or("no output")?).lines();
        // "ChromeDriver was started successfully on port 40123."
        let port = lines.map_while(Result::ok).find_map(|line| {
            line.split_once("successfully on port ").map(|(_, port)| port.trim_end_matches('.').to_owned())
        });
        let port = port.ok_or("chromedriver names no port")?;
        let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(60)));
        let http = config.http_status_as_error(false).build().new_agent();
        let mut browser = Browser { driver, session: format!("http://127.0.0.1:{port}/session"), http };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--host-resolver-rules=MAP elsewhere.example 127.0.0.1",
        ];
        let options = json!({"args": arguments, "binary": chromium});
        let wanted = json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}});
        let session = browser.post("", &wanted)?;
        let id = session["sessionId"].as_str().ok_or("no session")?.to_owned();
        browser.session += &format!("/{id}");
        Ok(browser)
    }

    pub fn open(&self, url: &str) {
        self.post("/url", &json!({"url": url})).expect("the page opens");
    }

    /// Runs a script in the page and returns what it returns, a promise's value too.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
            .unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits until a script returns true: asks in each picture that the browser draws.
    pub fn until(&self, condition: &str) {
        let script = format!(
            "return new Promise((done) => {{ const began = performance.now(); const look = () => {{
                let is = false; try {{ is = {condition}; }} catch {{}}
                if (is) done(true); else if (performance.now() - began > 30000) done(false);
                else setTimeout(look, 10); }}; look(); }});"
        );
        assert_eq!(
            self.run(&script),
            json!(true),
            "it never came to: {condition}\n{}",
            self.run("return document.body.innerText")
        );
    }

    /// Presses keys, one after the other, where the focus is.
    pub fn keys(&self, keys: &[&str]) {
        let actions: Vec<_> = keys
            .iter()
            .flat_map(|key| {
                [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
            })
            .collect();
        self.act(json!({"type": "key", "id": "keyboard", "actions": actions}));
    }

    /// Types text where the focus is.
    pub fn text(&self, text: &str) {
        let letters: Vec<_> = text.chars().map(String::from).collect();
        self.keys(&letters.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Presses the mouse at one point, moves it to another and lets it go.
    pub fn drag(&self, from: (i64, i64), to: (i64, i64)) {
        let go =
            |(x, y)| json!({"type": "pointerMove", "duration": 20, "x": x, "y": y, "origin": "viewport"});
        let middle = ((from.0 + to.0) / 2, (from.1 + to.1) / 2);
        let actions = json!([go(from), {"type": "pointerDown", "button": 0}, go(middle), go(to), {"type": "pointerUp", "button": 0}]);
        self.act(json!({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions}));
    }

    /// Presses the element that a selector finds.
    pub fn press(&self, selector: &str) {
        let found = self.post("/element", &json!({"using": "css selector", "value": selector}));
        let element =
            found.unwrap_or_else(|error| panic!("{selector}: {error}"))[ELEMENT].as_str().unwrap().to_owned();
        self.post(&format!("/element/{element}/click"), &json!({}))
            .unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    /// Sets the size of the page and whether it is dark, and keeps a picture of it.
    pub fn picture(&self, width: u32, height: u32, dark: bool, path: &str) {
        self.size(width, height, dark);
        let picture = self.get("/screenshot").expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD.decode(picture.as_str().unwrap()).unwrap();
        std::fs::write(path, bytes).expect("the picture is kept");
    }

    pub fn size(&self, width: u32, height: u32, dark: bool) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.tool("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if dark { "dark" } else { "light" };
        self.tool(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]}),
        );
        self.run(
            "return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))",
        );
    }

    fn tool(&self, name: &str, parameters: Value) {
        self.post("/goog/cdp/execute", &json!({"cmd": name, "params": parameters}))
            .expect("a command of the browser's tools");
    }

    fn act(&self, source: Value) {
        self.post("/actions", &json!({"actions": [source]})).expect("the action is performed");
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        let answer = self
            .http
            .post(format!("{}{path}", self.session))
            .content_type("application/json")
            .send(body.to_string());
        value(answer)
    }

    fn get(&self, path: &str) -> Result<Value, String> {
        value(self.http.get(format!("{}{path}", self.session)).call())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser; its driver is ended by its process.
        let _ = self.http.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn value(answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Value, String> {
    let mut answer = answer.map_err(|error| error.to_string())?;
    let ok = answer.status().is_success();
    let text = answer
        .body_mut()
        .with_config()
        .limit(64 << 20)
        .read_to_string()
        .map_err(|error| error.to_string())?;
    let value =
        serde_json::from_str::<Value>(&text).map_err(|error| format!("{error}: {text}"))?["value"].take();
    if ok { Ok(value) } else { Err(value["message"].as_str().unwrap_or(&text).to_owned()) }
}

fn on_path(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|place| place.join(name));
    places.find(|file| file.is_file()).map(|file| file.display().to_string())
}
