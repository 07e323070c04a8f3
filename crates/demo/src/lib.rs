//! What `informerd demo` has beside a daemon: two equal simulated clusters, one of them for the daemon, equal clients of both,
//! and a live comparison of what the two apiservers have to do.

mod banner;
mod clients;
mod load;
mod options;
mod outage;
mod screen;
mod simulated;
mod tally;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use informerd_cli::{Address, Readers, Server};
use informerd_lifecycle::drain::DrainWatch;
use informerd_lifecycle::readiness::Registry;
use informerd_lifecycle::spawn;
use informerd_sim::DemoConfig;
use informerd_status::terminal;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use self::banner::Banner;
use self::clients::Clients;
pub use self::clients::resources;
use self::load::Loads;
pub use self::options::Options;
pub use self::outage::Plan;
use self::outage::{Apiserver, Telling, WAITING};
use self::screen::{EVERY, Screen, View};
use self::simulated::Simulated;
use self::tally::Side;

/// The longest wait for the watches of all clients before the time until the outage begins.
const LONGEST_START: Duration = Duration::from_secs(60);
/// A drain that takes longer is told.
const SOON: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(50);

/// The daemon in front of one of the clusters.
#[derive(Clone, Debug)]
pub struct Front {
    pub https: bool,
    pub address: SocketAddr,
    /// The CA of an https listener.
    pub ca: Option<PathBuf>,
    pub admin: SocketAddr,
    /// A kubeconfig for it.
    pub kubeconfig: PathBuf,
    pub readiness: Registry,
    pub drain: DrainWatch,
}

/// The simulated clusters. They end when this is dropped.
#[derive(Debug)]
pub struct Clusters {
    without: Simulated,
    with: Simulated,
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

// === impl Clusters ===

impl Clusters {
    /// # Errors
    /// A thread or a server cannot be started.
    pub async fn start(options: &Options) -> Result<Self, String> {
        let shape = DemoConfig {
            nodes: options.nodes as usize,
            pods: options.pods as usize,
            namespaces: options.namespaces as usize,
            churn: f64::from(options.churn),
            seed: options.seed,
            ..DemoConfig::default()
        };
        let clusters = tokio::try_join!(Simulated::start("without", shape.clone()), Simulated::start("with", shape));
        let (without, with) = clusters.map_err(|error| format!("the simulated cluster: {error}"))?;
        Ok(Self { without, with })
    }

    /// The apiserver for the daemon.
    pub fn url(&self) -> String {
        self.with.running.server.url()
    }

    /// Writes the first lines and starts the clients, the outage and the live view.
    ///
    /// # Errors
    /// The CA of the daemon cannot be read.
    pub async fn begin(&self, options: &Options, front: Front, readers: Readers) -> Result<(), String> {
        let Front { https, address, ca, admin, kubeconfig, readiness, drain } = front;
        let (scheme, of) = if https {
            ("https", Address::Https(address.to_string()))
        } else {
            ("http", Address::Http(address.to_string()))
        };
        let server = Server { address: Some(of), ca_file: ca.clone(), ..Server::default() };
        let program = std::env::args().next().unwrap_or_else(|| "informerd".to_owned());
        let url = format!("{scheme}://{address}");
        let banner =
            Banner { program: &program, url: &url, ca: ca.as_deref(), admin, kubeconfig: &kubeconfig, options };
        let painted = terminal::is_painted();
        let mut screen = Screen::new(io::stdout(), painted, painted && terminal::is_colored());
        screen.write(&banner.render()).ok();
        let [without, with] = [&self.without, &self.with]
            .map(|cluster| Side { apiserver: cluster.running.clone(), tally: Arc::default() });
        let apiserver = Address::Http(without.apiserver.server.address().to_string());
        let apiserver = Server { address: Some(apiserver), ..Server::default() };
        let watchers = options.watchers;
        let clients = [
            Clients { target: apiserver.target(readers).await?, grpc: false, watchers, tally: without.tally.clone() },
            Clients { target: server.target(readers).await?, grpc: true, watchers, tally: with.tally.clone() },
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
        let (draining, guard) = (drain.clone(), drain.guard());
        spawn("demo screen", async move {
            let ending = draining.draining();
            // A closed output is no reason to stop serving.
            shown.run(screen, ending).await.ok();
            drop(guard);
        });
        let draining = drain.clone();
        spawn("demo ending", async move {
            draining.draining().await;
            // Usually the process has ended before.
            tokio::time::sleep(SOON).await;
            eprintln!("informerd: waiting for clients to end; Ctrl-C again ends it at once");
        });
        let plan = options.outage;
        spawn("demo clients", async move {
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
