//! `informerd demo`: two equal simulated clusters, one of them with a daemon in front of it, equal clients of both, and a
//! live comparison of what the two apiservers have to do.

mod banner;
mod clients;
mod load;
mod outage;
mod screen;
mod side;
mod simulated;
mod tally;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use informerd_client::{Address, Server};
use informerd_sim::DemoConfig;
use informerd_status::terminal;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use self::banner::Banner;
use self::clients::Clients;
use self::load::Loads;
use self::outage::{Apiserver, Plan, Telling, WAITING};
use self::screen::{EVERY, Screen, View};
use self::side::Side;
use self::simulated::Simulated;
use super::daemon::Daemon;
use super::in_use;
use super::kubeconfig::{self, Endpoint};
use super::process::{self, Context, End, ProcessError};
use super::readers::READERS;
use crate::args::DemoArgs;
use crate::config::{Config, ResourcePattern, ResourceRule, RuleModes};
use crate::lifecycle;
use crate::lifecycle::signals::Signals;
use crate::passthrough::LendIdentity;
use crate::telemetry::otel::Otel;
use crate::upstream::client::ConfigSource;

/// The longest wait for the watches of all clients before the time until the outage begins.
const LONGEST_START: Duration = Duration::from_secs(60);
/// A drain that takes longer is told.
const SOON: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(50);

/// The simulated clusters, the daemon in front of one of them, and a kubeconfig that is deleted at the end.
struct Demo {
    daemon: Daemon,
    without: Simulated,
    with: Simulated,
    kubeconfig: PathBuf,
}

/// What the live view reads.
struct Shown {
    without: Side,
    with: Side,
    lines: mpsc::Receiver<String>,
    apiserver: watch::Receiver<Apiserver>,
    begin: Instant,
    /// Written after the summary.
    last: String,
}

/// Runs until a signal arrives or the time is over.
///
/// # Errors
/// A port is in use, or the kubeconfig cannot be written.
pub(super) async fn run(config: &Config, demo: &DemoArgs, otel: &Otel) -> Result<End, ProcessError> {
    let (context, drain) = Context::new();
    let signals = Signals::install(&context.hangups).map_err(ProcessError::Signals)?;
    otel.export(context.metrics.clone());
    let started = start(config, demo, context.clone());
    let duration = demo.duration;
    let until = |_: &Demo| async move {
        match duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    process::supervise(context, drain, config.drain.timeout, signals, started, until).await
}

async fn start(config: &Config, demo: &DemoArgs, context: Context) -> Result<Demo, String> {
    let shape = DemoConfig {
        nodes: demo.nodes as usize,
        pods: demo.pods as usize,
        namespaces: demo.namespaces as usize,
        churn: f64::from(demo.churn),
        seed: demo.seed,
        ..DemoConfig::default()
    };
    let clusters = tokio::try_join!(Simulated::start("without", shape.clone()), Simulated::start("with", shape));
    let (without, with) = clusters.map_err(|error| format!("the simulated cluster: {error}"))?;
    let url = with.running().server().url();
    let url = url.parse().map_err(|error| format!("the simulated cluster: {error}"))?;
    let source = ConfigSource::Fixed(Box::new(kube::Config::new(url)));
    let mut config = config.clone();
    // The simulated apiserver has no users, so everything is allowed.
    config.lend_identity = LendIdentity::All;
    if config.informer.rules.is_empty() {
        config.informer.rules = clients::resources().iter().map(|(group, resource)| pinned(group, resource)).collect();
    }
    let daemon = match Daemon::start(&config, source, &context).await {
        Ok(daemon) => daemon,
        Err(error) => return Err(in_use::told(&error, &config).await),
    };
    let path = write_kubeconfig(&daemon)?;
    let running = Demo { daemon, without, with, kubeconfig: path };
    begin(&running, demo, &context).await?;
    Ok(running)
}

fn write_kubeconfig(daemon: &Daemon) -> Result<PathBuf, String> {
    let (https, address) = kubeconfig::listener(&daemon.listen)?;
    let ca = match &daemon.ca_file {
        Some(path) if https => Some(std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?),
        _ => None,
    };
    let path = std::env::temp_dir().join(format!("informerd-demo-{}.kubeconfig", std::process::id()));
    let text = kubeconfig::render(&Endpoint { https, address, ca, namespace: None })?;
    kubeconfig::write(&path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// Writes the first lines and starts the clients, the outage and the live view.
async fn begin(running: &Demo, demo: &DemoArgs, context: &Context) -> Result<(), String> {
    let daemon = &running.daemon;
    let (https, address) = kubeconfig::listener(&daemon.listen)?;
    let ca = daemon.ca_file.as_deref().filter(|_| https);
    let (scheme, of) = if https {
        ("https", Address::Https(address.to_string()))
    } else {
        ("http", Address::Http(address.to_string()))
    };
    let server = Server { address: Some(of), ca_file: ca.map(Into::into), ..Server::default() };
    let program = std::env::args().next().unwrap_or_else(|| "informerd".to_owned());
    let url = format!("{scheme}://{address}");
    let banner =
        Banner { program: &program, url: &url, ca, admin: daemon.admin, kubeconfig: &running.kubeconfig, args: demo };
    let painted = terminal::is_painted();
    let mut screen = Screen::new(io::stdout(), painted, painted && terminal::is_colored());
    screen.write(&banner.render()).ok();
    let [without, with] = [&running.without, &running.with]
        .map(|cluster| Side { apiserver: cluster.running().clone(), tally: Arc::default() });
    let apiserver = Address::Http(without.apiserver.server().address().to_string());
    let apiserver = Server { address: Some(apiserver), ..Server::default() };
    let watchers = demo.watchers;
    let clients = [
        Clients { target: apiserver.target(READERS).await?, grpc: false, watchers, tally: without.tally.clone() },
        Clients { target: server.target(READERS).await?, grpc: true, watchers, tally: with.tally.clone() },
    ];
    let (lines, told) = mpsc::channel(WAITING);
    let telling = Telling { lines, apiserver: watch::Sender::default() };
    let shown = Shown {
        without: without.clone(),
        with: with.clone(),
        lines: told,
        apiserver: telling.apiserver.subscribe(),
        begin: Instant::now(),
        last: format!("\nTry while a demo runs:\n  {}\n", banner.commands().join("\n  ")),
    };
    let (drain, guard) = (context.drain.clone(), context.drain.guard());
    lifecycle::spawn("demo screen", async move {
        let ending = drain.draining();
        // A closed output is no reason to stop serving.
        shown.run(screen, ending).await.ok();
        drop(guard);
    });
    let drain = context.drain.clone();
    lifecycle::spawn("demo ending", async move {
        drain.draining().await;
        // Usually the process has ended before.
        tokio::time::sleep(SOON).await;
        eprintln!("informerd: waiting for clients to end; Ctrl-C again ends it at once");
    });
    let (readiness, drain) = (context.readiness.clone(), context.drain.clone());
    let plan = demo.outage_after.map(|after| Plan { after, length: demo.outage });
    lifecycle::spawn("demo clients", async move {
        let going = async {
            while !readiness.is_ready() {
                tokio::time::sleep(LOOK).await;
            }
            clients.iter().for_each(|clients| clients.start(&drain));
            let late = Instant::now() + LONGEST_START;
            while clients.iter().any(|clients| !clients.all_watch()) && Instant::now() < late {
                tokio::time::sleep(LOOK).await;
            }
            if let Some(plan) = plan {
                plan.run(&without, &with, &telling).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = going => {}
            () = drain.draining() => {}
        }
    });
    Ok(())
}

fn pinned(group: &str, resource: &str) -> ResourceRule {
    ResourceRule {
        pattern: ResourcePattern { group: group.to_owned(), resource: resource.to_owned() },
        exclude: false,
        pin: true,
        namespaces: Vec::new(),
        field_selector: String::new(),
        label_selector: String::new(),
        modes: RuleModes::default(),
        form: None,
        snapshot: true,
    }
}

// === impl Shown ===

impl Shown {
    /// Shows the view until `ending`, and then the summary.
    async fn run(mut self, mut screen: Screen<io::Stdout>, ending: impl Future<Output = ()>) -> io::Result<()> {
        let mut ticks = interval_at(Instant::now() + EVERY, EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ending = std::pin::pin!(ending);
        // The summary shows the watches that were open before the end began.
        let mut view = self.view();
        loop {
            tokio::select! {
                () = &mut ending => break,
                _ = ticks.tick() => {}
                Some(line) = self.lines.recv() => screen.say(&line)?,
            }
            view = self.view();
            screen.show(&view, terminal::size())?;
        }
        screen.write(&format!("\n{}{}", view.summary(), self.last))
    }

    fn view(&self) -> View {
        View {
            time: self.begin.elapsed(),
            loads: Loads { without: self.without.apiserver.load(), with: self.with.apiserver.load() },
            reads: self.with.tally.reads(),
            apiserver: *self.apiserver.borrow(),
        }
    }
}

// === impl Demo ===

impl Drop for Demo {
    fn drop(&mut self) {
        // Stop this before the simulated apiserver ends, so that its end is not reported as an error.
        self.daemon.factory.stop();
        // It does not matter if the file is already gone.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}
