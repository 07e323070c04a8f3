//! `informerd get` and `informerd watch`: show the cache of a running informerd, through its gRPC API.

mod address;
mod ask;
mod connection;
mod failure;
mod peer;
mod print;
mod readers;
mod resolve;
mod seen;
mod server;
mod watch;

use std::io::Write;

use informerd_api::v1;
use informerd_status::terminal::escaped;
use tonic::Streaming;

pub use address::Address;
pub use ask::Ask;
pub use connection::Connection;
pub use print::Output;
pub use readers::{ApiResource, Identifying, Readers, User};
pub use server::{Server, Target, Token};

use ask::{begin, in_time, selection};
use failure::Failure;
use print::Printer;
use resolve::Named;

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// One line for people.
    pub message: String,
    /// The daemon did not answer in time.
    pub late: bool,
}

/// Prints the existing objects. As in kubectl, an empty list is told on `err`.
///
/// # Errors
/// The error, in words for people.
pub async fn get(
    ask: &Ask,
    readers: Readers,
    out: &mut (dyn Write + Send),
    err: &mut (dyn Write + Send),
) -> Result<(), Failed> {
    said(try_get(ask, readers, out, err).await)
}

/// Prints the existing objects, and then every change, until it is interrupted.
///
/// # Errors
/// The error, in words for people. Losing the connection later is not an error.
pub async fn watch(
    ask: &Ask,
    readers: Readers,
    out: &mut (dyn Write + Send),
    err: &mut (dyn Write + Send),
) -> Result<(), Failed> {
    said(watch::run(ask, readers, out, err).await)
}

fn said(result: Result<(), Failure>) -> Result<(), Failed> {
    match result {
        Ok(()) | Err(Failure::Gone) => Ok(()),
        Err(Failure::Said(message)) => Err(Failed { message: escaped(&message), late: false }),
        Err(Failure::Late(message)) => Err(Failed { message: escaped(&message), late: true }),
    }
}

/// The first message of an answer.
enum First {
    Object(Box<v1::Object>),
    List(Box<Streaming<v1::ListResponse>>),
}

async fn try_get(
    ask: &Ask,
    readers: Readers,
    out: &mut (dyn Write + Send),
    err: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    let target = ask.server.target(readers).await.map_err(Failure::Said)?;
    let asking = async {
        let (connection, named) = begin(ask, &target, readers).await?;
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
    match (&ask.name, &ask.namespace) {
        _ if found > 0 => {}
        (Some(name), _) => return Err(Failure::Said(format!("there is no {} named {name:?}", named.short()))),
        // As kubectl says it.
        (None, Some(namespace)) => writeln!(err, "No resources found in {namespace} namespace.")?,
        (None, None) => writeln!(err, "No resources found")?,
    }
    Ok(())
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
