//! Connects all modules: builds each one from its configuration and returns the addresses that it bound.

pub mod admin_side;
mod authority;
mod certificates;
pub mod check;
mod clock;
mod collect;
mod convert;
pub mod daemon;
#[cfg(feature = "demo")]
mod demo;
mod drop_in;
mod explain;
mod in_use;
mod inject;
mod injector;
mod introspect;
pub mod kubeconfig;
mod memory;
pub mod process;
mod readers;
mod revisions;
mod typed;
mod version;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use informerd_cli::{self as client, Ask};
use informerd_status::{self as status, terminal};
use tokio::runtime::Runtime;

use self::admin_side::AdminSide;
use self::check::Cluster;
use self::daemon::Daemon;
use self::process::Context;
use self::readers::READERS;
use crate::apiserver::client::ConfigSource;
use crate::args::{self, Command, DemoArgs, EXIT_USAGE, StatusArgs};
use crate::config::{self, Config, Environment, Loaded, UpstreamConfig};
use crate::lifecycle::drain::Drain;
use crate::telemetry::otel::Otel;

const EXIT_FAILURE: u8 = 1;
/// The daemon did not answer in time. A later attempt may succeed (`EX_TEMPFAIL`).
const EXIT_LATE: u8 = 75;

/// Why a command failed.
struct Failed {
    message: String,
    code: u8,
}

/// Parses the command line, runs the chosen subcommand and returns the process's exit code (0 success, 1 runtime
/// failure, 64 bad configuration, 75 no answer from the daemon in time).
pub fn main() -> ExitCode {
    ExitCode::from(dispatch(std::env::args_os(), &mut io::stdout(), &mut io::stderr()))
}

/// Like [`main`], with all inputs and outputs as parameters.
fn dispatch(
    arguments: impl IntoIterator<Item = OsString>,
    out: &mut (dyn io::Write + Send),
    err: &mut (dyn io::Write + Send),
) -> u8 {
    let invocation = match args::parse(arguments) {
        Ok(invocation) => invocation,
        Err(exit) => {
            // If even this cannot be written, there is no other way to report it.
            let _ =
                if exit.code == 0 { out.write_all(exit.text.as_bytes()) } else { err.write_all(exit.text.as_bytes()) };
            return exit.code;
        }
    };
    let done = match &invocation.command {
        Command::Version => {
            let _ = writeln!(out, "informerd {}", version::full());
            Ok(())
        }
        Command::Completions(shell) => {
            // A pager that was left early is no error.
            let _ = out.write_all(&args::command_line().completions(*shell));
            Ok(())
        }
        Command::Man { command, directory } => show_man(command.as_deref(), directory.as_deref(), out),
        Command::Get(ask) => look(ask, false, out, err),
        Command::Watch(ask) => look(ask, true, out, err),
        command => match config::load(&invocation.flags, &Environment) {
            Ok(loaded) => configured(command, &loaded, out, err),
            Err(mistakes) => {
                let _ = writeln!(err, "{mistakes}");
                return EXIT_USAGE;
            }
        },
    };
    match done {
        Ok(()) => 0,
        Err(failure) => {
            let _ = writeln!(err, "informerd: {}", failure.message);
            failure.code
        }
    }
}

/// Runs a command that has settings.
fn configured(
    command: &Command,
    loaded: &Loaded,
    out: &mut (dyn io::Write + Send),
    err: &mut (dyn io::Write + Send),
) -> Result<(), Failed> {
    match command {
        Command::Version | Command::Completions(_) | Command::Man { .. } | Command::Get(_) | Command::Watch(_) => {
            Ok(())
        }
        Command::Kubeconfig { write } => print_kubeconfig(&loaded.config, write.as_deref(), out, err),
        Command::Status(wanted) => show_status(loaded, *wanted, out),
        Command::Explain(explained) => asking(explain::ask(AdminSide(loaded.config.admin.listen), explained))
            .and_then(|explanation| print(out, &explanation.render(&explained.target))),
        Command::Check => run_check(loaded, out),
        Command::Run => run(loaded),
        Command::Injector => run_injector(loaded),
        Command::Inject(wanted) => inject::rewrite(&loaded.config.inject, wanted, out, err).map_err(Failed::from),
        Command::Demo(demo) => run_demo(loaded, demo),
    }
}

fn show_man(command: Option<&str>, directory: Option<&Path>, out: &mut dyn io::Write) -> Result<(), Failed> {
    let Some(directory) = directory else {
        return match args::command_line().print_page(command, out) {
            Ok(false) => Err(Failed::usage(format!("no such command: {}", command.unwrap_or_default()))),
            // A pager that was left early is no error.
            _ => Ok(()),
        };
    };
    args::command_line().write_pages(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(())
}

fn show_status(loaded: &Loaded, wanted: StatusArgs, out: &mut (dyn io::Write + Send)) -> Result<(), Failed> {
    let admin = &AdminSide(loaded.config.admin.listen);
    match wanted {
        StatusArgs { json: true, .. } => asking(status::ask_json_text(admin)).and_then(|text| print(out, &text)),
        StatusArgs { watch: true, .. } => asking(status::watch(admin, terminal::is_colored(), out)),
        StatusArgs { .. } => {
            let width = terminal::size().map_or(usize::MAX, |(columns, _)| columns.into());
            let style = status::Style { colors: terminal::is_colored(), width };
            asking(status::ask(admin)).and_then(|status| print(out, &status.render(style)))
        }
    }
}

/// Waits for a daemon's answer.
fn asking<T>(answer: impl Future<Output = Result<T, String>>) -> Result<T, Failed> {
    Ok(process::runtime(Some(1))?.block_on(answer)?)
}

fn print(out: &mut dyn io::Write, text: &str) -> Result<(), Failed> {
    match out.write_all(text.as_bytes()) {
        // A pager or `head` that has seen enough is no error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string().into()),
        _ => Ok(()),
    }
}

/// Queries the cache of a running daemon.
fn look(
    ask: &Ask,
    watching: bool,
    out: &mut (dyn io::Write + Send),
    err: &mut (dyn io::Write + Send),
) -> Result<(), Failed> {
    let runtime = process::runtime(Some(1))?;
    // Not line-buffered: lines that belong together are flushed together.
    let mut out = io::BufWriter::new(out);
    let done = runtime.block_on(async {
        if watching {
            client::watch(ask, READERS, &mut out, err).await
        } else {
            client::get(ask, READERS, &mut out, err).await
        }
    });
    Ok(done?)
}

fn print_kubeconfig(
    config: &Config,
    write: Option<&Path>,
    out: &mut dyn io::Write,
    err: &mut dyn io::Write,
) -> Result<(), Failed> {
    let (https, address) = kubeconfig::listener(&config.http.listen)?;
    let mut ca = None;
    // Certificates from files come from a CA that the clients' systems trust, or that their owner must configure.
    if https && config.http.tls.files.is_none() {
        let path = config.state_dir.join("ca.crt");
        let failed = |error| format!("{}: {error}: the CA is issued when the daemon first starts", path.display());
        ca = Some(std::fs::read(&path).map_err(failed)?);
    }
    // The files that the daemon uses may be in another place.
    let namespace = match asking(check::cluster(config)) {
        Ok(cluster) => Some(cluster.config.default_namespace).filter(|name| name != "default"),
        Err(Failed { message, .. }) => {
            if !config.upstream.kubeconfigs.is_empty() {
                let _ = writeln!(err, "without the namespace of its context: {message}");
            }
            None
        }
    };
    let text = kubeconfig::render(&kubeconfig::Endpoint { https, address, ca, namespace })?;
    let Some(path) = write else { return print(out, &text) };
    kubeconfig::write(path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    // The file is what was asked for. That this cannot be told is no failure.
    let _ = writeln!(err, "wrote {0}: kubectl --kubeconfig {0} get pods", path.display());
    Ok(())
}

fn run_check(loaded: &Loaded, out: &mut dyn io::Write) -> Result<(), Failed> {
    let mut text = String::from("settings: ok\n");
    for effective in &loaded.effective {
        text.push_str(&format!("  {effective}\n"));
    }
    for warning in &loaded.warnings {
        text.push_str(&format!("  warning: {warning}\n"));
    }
    print(out, &text)?;
    let runtime = process::runtime(Some(1))?;
    let cluster = runtime.block_on(check::cluster(&loaded.config)).map_err(Failed::usage)?;
    let (text, wrong) = runtime.block_on(check::ask(&cluster, &loaded.config))?;
    print(out, &text)?;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}

fn run(loaded: &Loaded) -> Result<(), Failed> {
    let config = &memory::fitted(loaded);
    let runtime = process::runtime(config.threads)?;
    let (context, drain) = runtime.block_on(async { Context::of_daemon(config) })?;
    serve(loaded, config, &runtime, &context, drain, async |source| {
        let daemon = match Daemon::start(config, source, &context).await {
            Ok(daemon) => daemon,
            Err(error) => return Err(in_use::told(&error, config).await),
        };
        for address in &daemon.listen {
            tracing::info!(%address, "serving");
        }
        if let Some(ca) = &daemon.ca_file {
            tracing::info!(ca = %ca.display(), "certificate is self-issued, clients need this CA");
        }
        tracing::info!(address = %daemon.admin, upstream = %daemon.upstream.authority(), "admin");
        Ok(daemon)
    })
}

fn run_injector(loaded: &Loaded) -> Result<(), Failed> {
    let config = &memory::fitted(loaded);
    injector::check(config).map_err(Failed::usage)?;
    let runtime = process::runtime(config.threads)?;
    let (context, drain) = Context::new();
    serve(loaded, config, &runtime, &context, drain, async |source| {
        injector::start(config, source, &context).await.map_err(|error| format!("{error:#}"))
    })
}

/// Runs what `start` starts in front of the apiserver, until a signal ends it.
fn serve<T>(
    loaded: &Loaded,
    config: &Config,
    runtime: &Runtime,
    context: &Context,
    drain: Drain,
    start: impl AsyncFnOnce(ConfigSource) -> Result<T, String>,
) -> Result<(), Failed> {
    // A wrong kubeconfig is a configuration error. An unreachable apiserver is not.
    let cluster = runtime.block_on(check::cluster(config)).map_err(Failed::usage)?;
    let otel = start_telemetry(config, loaded, Some(&cluster))?;
    let started = start(source(&config.upstream, &cluster));
    let until = std::future::pending();
    // A forced drain is not an error either. The log reports it.
    runtime.block_on(process::serve(context.clone(), drain, config, &otel, started, until))?;
    Ok(())
}

#[cfg(not(feature = "demo"))]
fn run_demo(_: &Loaded, _: &DemoArgs) -> Result<(), Failed> {
    Err(Failed {
        code: EXIT_USAGE,
        message: "this build has no demo: run `cargo run --release -- demo` in the sources".into(),
    })
}

#[cfg(feature = "demo")]
fn run_demo(loaded: &Loaded, args: &DemoArgs) -> Result<(), Failed> {
    let mut config = loaded.config.clone();
    if !loaded.effective.iter().any(|effective| effective.key == "log.level") {
        // The live view is the output to watch, and it tells the outage.
        "error".clone_into(&mut config.log.filter);
    }
    let otel = start_telemetry(&config, loaded, None)?;
    let runtime = process::runtime(config.threads)?;
    runtime.block_on(demo::run(&config, args, &otel))?;
    Ok(())
}

/// The credentials of a user's kubeconfigs, or of the service account of our pod. The context stays the one of the start:
/// its files are read again when they change, and by then another one may be current, whose cluster is not the one in the
/// caches.
fn source(upstream: &UpstreamConfig, cluster: &Cluster) -> ConfigSource {
    if upstream.kubeconfigs.is_empty() {
        return ConfigSource::InCluster;
    }
    ConfigSource::Kubeconfig {
        paths: upstream.kubeconfigs.clone(),
        context: Some(cluster.context.clone()).filter(|context| !context.is_empty()),
        cluster: None,
        user: None,
    }
}

/// Starts logging and tracing. The first line shows the cluster and the settings. The returned value must be dropped at the end of the
/// process, because that sends the last lines and spans.
fn start_telemetry(config: &Config, loaded: &Loaded, cluster: Option<&Cluster>) -> Result<Otel, Failed> {
    let otel = Otel::start(&config.otel).map_err(Failed::usage)?;
    config.log.install(&otel)?;
    let settings = loaded.effective.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let version = version::full();
    if let Some(Cluster { config, origin, context }) = cluster {
        tracing::info!(version, apiserver = %config.cluster_url, context, credentials = origin, settings, "starting");
    } else {
        tracing::info!(version, settings, "starting");
    }
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(spans) = &config.otel.spans {
        tracing::info!(endpoint = %spans.target.endpoint, sampler = ?spans.sampler, "traces are exported");
    }
    if let Some(metrics) = &config.otel.metrics {
        tracing::info!(endpoint = %metrics.target.endpoint, interval = ?metrics.interval, "metrics are exported");
    }
    Ok(otel)
}

// === impl Failed ===

impl Failed {
    fn usage(message: String) -> Self {
        Self { message, code: EXIT_USAGE }
    }
}

impl From<client::Failed> for Failed {
    fn from(client::Failed { message, late }: client::Failed) -> Self {
        Self { message, code: if late { EXIT_LATE } else { EXIT_FAILURE } }
    }
}

impl From<String> for Failed {
    fn from(message: String) -> Self {
        Self { message, code: EXIT_FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> (u8, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let arguments = std::iter::once("informerd").chain(line.split_whitespace()).map(OsString::from);
        let code = dispatch(arguments, &mut out, &mut err);
        (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn version_and_help_are_answers() {
        let (code, out, err) = told("version");
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(
            out.starts_with(&format!("informerd {} (", env!("CARGO_PKG_VERSION"))) && out.lines().count() == 1,
            "{out}"
        );
        for shell in ["bash", "zsh", "fish"] {
            let (code, out, _) = told(&format!("completions {shell}"));
            assert!(code == 0 && out.contains("informerd") && out.contains("snapshots-max-bytes"), "{shell}: {out}");
        }
        let (code, out, _) = told("man status");
        assert!(code == 0 && out.contains(".TH informerd-status 1"), "{out}");
        let (code, _, err) = told("man nothing");
        assert_eq!((code, err.as_str()), (EXIT_USAGE, "informerd: no such command: nothing\n"));
        let (code, out, _) = told("--help");
        assert!(code == 0 && out.contains("demo") && out.contains("--kubeconfig"));
    }

    #[test]
    fn prints_a_kubeconfig() {
        let (code, out, _) = told("kubeconfig --listen http://127.0.0.1:9999");
        assert!(code == 0 && out.contains("server: http://127.0.0.1:9999\n"), "{out}");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("k");
        let (code, out, err) = told(&format!("kubeconfig --listen http://127.0.0.1:9999 --write {}", path.display()));
        let wrote = format!("wrote {0}: kubectl --kubeconfig {0} get pods\n", path.display());
        assert_eq!((code, out.as_str(), err), (0, "", wrote));
        assert!(std::fs::read_to_string(&path).unwrap().contains("127.0.0.1:9999"));
        let again = format!("kubeconfig --listen http://127.0.0.1:9998 --kubeconfig {}", path.display());
        assert!(!told(&again).1.contains("namespace"));
        let text = std::fs::read_to_string(&path).unwrap().replace("    user: ", "    namespace: shop\n    user: ");
        std::fs::write(&path, text).unwrap();
        let (code, out, _) = told(&again);
        assert!(code == 0 && out.contains("    namespace: \"shop\"\n"), "{out}");
        let state = directory.path().display();
        let (code, _, err) = told(&format!("kubeconfig --listen https://127.0.0.1:9999 --state-dir {state}"));
        assert!(code == 1 && err.contains("ca.crt"), "{err}");
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_error() {
        struct Gone;
        impl io::Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut err = Vec::new();
        let line = "informerd kubeconfig --listen http://127.0.0.1:9999".split(' ').map(OsString::from);
        assert_eq!((dispatch(line, &mut Gone, &mut err), err), (0, Vec::new()));
    }

    #[test]
    fn a_kubeconfig_that_is_missing_is_told_in_one_line() {
        let (code, _, err) = told("check --kubeconfig /no/such/file");
        assert!(code == 64 && err.starts_with("informerd: kubeconfig /no/such/file: "), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}
