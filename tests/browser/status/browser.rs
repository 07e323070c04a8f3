//! A headless Chromium, spoken to over its pipe.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::support::tied;
use crate::support::within;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep};

const NAMES: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// One page.
pub(super) struct Browser {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    session: Option<String>,
    last: u64,
    complaints: Vec<String>,
    _child: Child,
    _profile: tempfile::TempDir,
}

// === impl Browser ===

impl Browser {
    /// Starts it and opens the page.
    pub(super) async fn open(url: &str) -> Self {
        let path = std::env::var("PATH").unwrap_or_default();
        let found = NAMES.iter().find(|name| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()));
        let program = found.expect("no Chromium on PATH (Debian: apt-get install chromium)");
        let profile = tempfile::tempdir().unwrap();
        // It speaks on the descriptors 3 and 4.
        let mut child = tied::command("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", program])
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args([
                "--disable-background-networking",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                "--window-size=1280,900",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a browser starts");
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser =
            Self { stdin, stdout, session: None, last: 0, complaints: Vec::new(), _child: child, _profile: profile };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.ask("Target.attachToTarget", attach).await;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({})).await;
        }
        browser.ask("Page.navigate", json!({"url": url})).await;
        browser
    }

    /// The value of an expression, or of what it promises.
    pub(super) async fn evaluate(&mut self, expression: &str) -> Value {
        self.try_evaluate(expression).await.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// The same; an error if the page is left before the browser answers.
    async fn try_evaluate(&mut self, expression: &str) -> Result<Value, Value> {
        let answer = self
            .try_ask("Runtime.evaluate", json!({"expression": expression, "returnByValue": true, "awaitPromise": true}))
            .await?;
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true; the bound only keeps a failing test from hanging.
    pub(super) async fn until(&mut self, expression: &str) {
        let bound = Instant::now() + Duration::from_secs(60);
        // What the page has not drawn yet cannot be read.
        let guarded = format!("(() => {{ try {{ return {expression} }} catch (e) {{ return String(e) }} }})()");
        loop {
            // A page that is being loaded again ends what is asked of the one before.
            let value = self.try_evaluate(&guarded).await.unwrap_or_else(|error| error);
            if value == true {
                return;
            }
            if Instant::now() > bound {
                let text = self.evaluate("document.body.innerText").await;
                panic!("{expression} is {value}; the page says {text}\n{:?}", self.complaints);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Errors and warnings of the page so far.
    pub(super) fn complaints(&self) -> Vec<String> {
        self.complaints.clone()
    }

    /// Loads the page again.
    pub(super) async fn reload(&mut self) {
        self.ask("Page.reload", json!({})).await;
    }

    /// Presses a key.
    pub(super) async fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            "Tab" => (9, ""),
            "ArrowLeft" => (37, ""),
            "ArrowRight" => (39, ""),
            _ => panic!("{key} has no code here"),
        };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.ask("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Whether the user wants less motion.
    pub(super) async fn reduce_motion(&mut self, reduce: bool) {
        let value = if reduce { "reduce" } else { "no-preference" };
        let features = json!([{"name": "prefers-reduced-motion", "value": value}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    /// Makes the window so wide, light or dark.
    pub(super) async fn window(&mut self, width: u32, dark: bool) {
        let scheme = json!([{"name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" }}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": scheme})).await;
        let window = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", window).await;
    }

    /// The whole page.
    pub(super) async fn screenshot(&mut self, path: &Path) {
        use base64::Engine as _;
        let whole = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.ask("Page.captureScreenshot", whole).await;
        let png = base64::engine::general_purpose::STANDARD.decode(answer["data"].as_str().unwrap()).unwrap();
        std::fs::write(path, png).unwrap();
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.try_ask(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sends a command and waits for its answer; messages in between that complain are kept.
    async fn try_ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.last += 1;
        let mut command = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.stdin.write_all(&bytes).await.expect("the browser takes a command");
        loop {
            let mut message = Vec::new();
            let read = within("the next message of the browser", self.stdout.read_until(0, &mut message))
                .await
                .expect("the browser answers");
            assert!(read > 0, "the browser has ended");
            message.pop();
            let message: Value = serde_json::from_slice(&message).expect("JSON");
            if message["id"] == self.last {
                return message.get("error").map_or_else(|| Ok(message["result"].clone()), |error| Err(error.clone()));
            }
            let method = message["method"].as_str().unwrap_or_default();
            if ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"].contains(&method) {
                self.complaints.push(message["params"].to_string());
            }
        }
    }
}
