//! `informerd get` and `informerd watch`: show the cache of a running informerd, through its gRPC API.

mod connection;
mod peer;
mod print;
mod resolve;
mod seen;
mod server;
mod watch;

use std::future::Future;
use std::io::{self, Write};
use std::time::Duration;

use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

pub(crate) use connection::{Address, Connection};
pub(crate) use print::Output;
pub(crate) use server::{Server, Target, Token};

use crate::grpc::pb::v1;
use print::Printer;
use resolve::Named;

/// A message exceeds its limit of 1 MiB by at most one object, so this leaves room for the largest object of the
/// apiserver.
const LARGEST_MESSAGE: usize = 64 << 20;

/// The query for the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub server: Server,
    /// As in kubectl: `pods`, `po`, `deployments.apps`, `deployments.v1.apps`.
    pub resource: String,
    pub name: Option<String>,
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    pub labels: String,
    pub fields: String,
    pub output: Output,
    /// The longest wait for the first message of the daemon, and for each message after it.
    pub timeout: Duration,
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// One line for people.
    pub message: String,
    /// The daemon did not answer in time.
    pub late: bool,
}

/// Why there is no answer, in one line.
#[derive(Debug)]
pub(crate) enum Failure {
    Said(String),
    /// The time is up.
    Late(String),
    /// The output is closed.
    Gone,
}

/// Prints the existing objects. As in kubectl, an empty list is told on `err`.
///
/// # Errors
/// The error, in words for people.
pub(crate) async fn get(ask: &Ask, out: &mut (dyn Write + Send), err: &mut (dyn Write + Send)) -> Result<(), Failed> {
    said(try_get(ask, out, err).await)
}

/// Prints the existing objects, and then every change, until it is interrupted.
///
/// # Errors
/// The error, in words for people. Losing the connection later is not an error.
pub(crate) async fn watch(ask: &Ask, out: &mut (dyn Write + Send), err: &mut (dyn Write + Send)) -> Result<(), Failed> {
    said(watch::run(ask, out, err).await)
}

fn said(result: Result<(), Failure>) -> Result<(), Failed> {
    match result {
        Ok(()) | Err(Failure::Gone) => Ok(()),
        Err(Failure::Said(message)) => Err(Failed { message, late: false }),
        Err(Failure::Late(message)) => Err(Failed { message, late: true }),
    }
}

/// The first message of an answer.
enum First {
    Object(Box<v1::Object>),
    List(Box<Streaming<v1::ListResponse>>),
}

async fn try_get(ask: &Ask, out: &mut (dyn Write + Send), err: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let target = ask.server.target().await.map_err(Failure::Said)?;
    let asking = async {
        let (connection, named) = begin(ask, &target).await?;
        let first = first(ask, &connection, &named).await?;
        Ok((first, named))
    };
    let (first, named) = in_time(ask, &target, asking).await?;
    let mut printer = Printer::new(ask.output, &named, out);
    let mut chunks = match first {
        First::Object(object) => {
            printer.object(&object)?;
            return printer.flush();
        }
        First::List(chunks) => chunks,
    };
    let mut found = 0;
    loop {
        // Printing may take any time: each wait has its own timeout.
        let next = async { chunks.message().await.map_err(|status| Failure::of(&status)) };
        let Some(chunk) = in_time(ask, &target, next).await? else { break };
        if let Some(v1::list_response::Part::Chunk(chunk)) = chunk.part {
            found += chunk.objects.len();
            chunk.objects.iter().try_for_each(|object| printer.object(object))?;
        }
    }
    printer.flush()?;
    match (&ask.name, found) {
        (Some(name), 0) => Err(Failure::Said(format!("there is no {} named {name:?}", named.short()))),
        (None, 0) => Ok(writeln!(err, "{}", nothing(ask.namespace.as_deref()))?),
        _ => Ok(()),
    }
}

/// What kubectl says of an empty list.
fn nothing(namespace: Option<&str>) -> String {
    namespace.map_or_else(
        || "No resources found".to_owned(),
        |namespace| format!("No resources found in {namespace} namespace."),
    )
}

/// Sends the request. It asks for what the cache holds, which needs no answer from the apiserver.
async fn first(ask: &Ask, connection: &Connection, named: &Named) -> Result<First, Failure> {
    let mut client = connection.objects();
    if let (Some(name), true) = (&ask.name, ask.namespace.is_some() || !named.namespaced) {
        let request = v1::GetRequest {
            resource: Some(named.resource.clone()),
            namespace: ask.namespace.clone().unwrap_or_default(),
            name: name.clone(),
            ..Default::default()
        };
        let answer = client.get(request).await.map_err(|status| Failure::of(&status))?.into_inner();
        return Ok(First::Object(Box::new(answer.object.unwrap_or_default())));
    }
    let request = v1::ListRequest { selection: Some(selection(ask, named)), consistency: None };
    let answer = client.list(request).await.map_err(|status| Failure::of(&status))?;
    Ok(First::List(Box::new(answer.into_inner())))
}

/// Waits for the daemon, with the timeout of the command line.
async fn in_time<T>(ask: &Ask, target: &Target, wait: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    timeout(ask.timeout, wait).await.unwrap_or_else(|_elapsed| {
        let Target { address, .. } = target;
        Err(Failure::Late(format!(
            "informerd at {address} has not answered within {:?}; --timeout sets another time",
            ask.timeout
        )))
    })
}

async fn begin(ask: &Ask, target: &Target) -> Result<(Connection, Named), Failure> {
    let connection = Connection::open(target).await.map_err(|error| {
        Failure::Said(format!(
            "there is no informerd at {} ({error}); is it running? --address names another",
            target.address
        ))
    })?;
    let named = resolve::resolve(&connection, &ask.resource, ask.timeout / 2).await?;
    if ask.namespace.is_some() && !named.namespaced {
        return Err(Failure::Said(format!("{} have no namespaces", named.short())));
    }
    Ok((connection, named))
}

fn selection(ask: &Ask, named: &Named) -> v1::Selection {
    let filter = v1::Filter {
        namespace: ask.namespace.clone().unwrap_or_default(),
        names: ask.name.iter().cloned().collect(),
        label_selector: ask.labels.clone(),
        field_selector: ask.fields.clone(),
        ..Default::default()
    };
    v1::Selection {
        resource: Some(named.resource.clone()),
        filters: vec![filter],
        // Only the printed fields have to be sent.
        shape: if ask.output == Output::Json { v1::Shape::Full } else { v1::Shape::MetadataOnly }.into(),
        ..Default::default()
    }
}

// === impl Failure ===

impl Failure {
    fn of(status: &Status) -> Self {
        let message = status.message();
        Self::Said(match status.code() {
            Code::Unknown | Code::Internal | Code::Unavailable if message.is_empty() => "the call failed".to_owned(),
            _ => message.replace('\n', " "),
        })
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Gone,
            _ => Self::Said(format!("writing: {error}")),
        }
    }
}
