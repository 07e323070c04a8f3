//! Why the daemon cannot start: if an address is taken, by whom, and which flag chooses another one.

use std::io::{self, ErrorKind};
use std::time::Duration;

use informerd_cli::{Address, Connection, Server};
use informerd_status as status;
use tokio::time::timeout;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::admin_side::AdminSide;
use super::readers::READERS;
use crate::admin::AdminError;
use crate::config::Config;
use crate::http::BindError;
use crate::http::ListenAddr;

/// The longest wait for whoever has the address.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most bytes of its answer.
const MOST_BYTES: usize = 4096;
/// A service that only informerd has.
const SERVICE: &str = "informerd.v1.Objects";

/// The error in one line.
pub(super) async fn told(error: &anyhow::Error, config: &Config) -> String {
    let text = format!("{error:#}");
    let taken = |error: &io::Error| error.kind() == ErrorKind::AddrInUse;
    let (flag, is_informerd) = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(BindError::Socket { address, error }), _) if taken(error) => ("--listen", answers(address).await),
        (Some(BindError::InUse(address)), _) => ("--listen", answers(address).await),
        (_, Some(AdminError::Listen { address, error })) if taken(error) => {
            // Its client would log that "the apiserver" answers.
            let admin = AdminSide(*address);
            let asked = status::ask(&admin).with_subscriber(NoSubscriber::default());
            let flag = if config.admin.probes == Some(*address) { "--probes" } else { "--admin" };
            (flag, timeout(PATIENCE, asked).await.is_ok_and(|status| status.is_ok()))
        }
        _ => return text,
    };
    if is_informerd {
        format!("{text}: another informerd serves there; --listen and --admin take other addresses")
    } else {
        format!("{text}: what answers there is not an informerd, or wants credentials; {flag} takes another address")
    }
}

/// Whether an informerd answers there, without credentials.
async fn answers(address: &ListenAddr) -> bool {
    let address = match address {
        ListenAddr::Http(at) => Address::Http(at.to_string()),
        ListenAddr::Unix(path) => Address::Unix(path.clone()),
        // Its certificate cannot be verified from here.
        ListenAddr::Https(_) | ListenAddr::Delegated(_) => return false,
    };
    let asking = async {
        let target = Server { address: Some(address), ..Server::default() }.target(READERS).await.ok()?;
        let connection = Connection::open(&target).await.ok()?;
        let mut health = HealthClient::with_origin(connection.clone(), connection.origin().clone())
            .max_decoding_message_size(MOST_BYTES);
        health.check(HealthCheckRequest { service: SERVICE.to_owned() }).await.ok()
    };
    matches!(timeout(PATIENCE, asking).await, Ok(Some(_known)))
}
