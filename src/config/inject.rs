//! The settings of injection.

use std::net::SocketAddr;

use informerd_injection::InjectionConfig;

use super::layers::Loader;
use super::parse::is_dns_name;
use super::sections::InjectSettings;

/// The image of a build on one's own machine, as README has it.
const IMAGE: &str = concat!("informerd:v", env!("CARGO_PKG_VERSION"));

impl Loader<'_> {
    pub(super) fn inject(&mut self) -> Option<InjectSettings> {
        let listen = self.parse("inject.listen", |text| {
            text.parse::<SocketAddr>().map_err(|_| format!("{text:?} is no address: want ADDRESS:PORT"))
        });
        let webhook = self.parse("inject.webhook", parse_object_name);
        let deployment = self.optional("inject.deployment", str::parse);
        let tier = self.parse("inject.tierAddress", parse_address);
        let node_port = self.parse("inject.nodePort", parse_port);
        let excluded = self.many("inject.exclude", parse_object_name);
        Some(InjectSettings {
            listen: listen?,
            webhook: webhook?,
            config: InjectionConfig { image: IMAGE.to_owned(), tier: tier?, node_port: node_port?, excluded },
            deployment,
        })
    }
}

/// A DNS subdomain, as names of objects are.
fn parse_object_name(text: &str) -> Result<String, String> {
    let valid = is_dns_name(text) && text.len() <= 253;
    if valid { Ok(text.to_owned()) } else { Err(format!("{text:?} is no name of an object")) }
}

fn parse_address(text: &str) -> Result<(String, u16), String> {
    let wrong = || format!("{text:?} is no address: want HOST:PORT");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = parse_port(port).map_err(|_| wrong())?;
    Ok((parse_object_name(host).map_err(|_| wrong())?, port))
}

fn parse_port(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|port| *port > 0).ok_or_else(|| format!("{text:?} is no port"))
}

#[cfg(test)]
mod tests {
    use crate::config::{Flags, MadeUp, load};

    /// The tests of injection compare the result of these with the examples of the manifests.
    #[test]
    fn defaults_are_those_of_the_manifests() {
        let config = load(&Flags::new(), &MadeUp::default()).unwrap().config.inject.config;
        assert_eq!((config.tier, config.node_port), (("informerd.informerd-tier.svc".to_owned(), 443), 8643));
        assert_eq!(config.excluded, ["informerd-injector", "informerd-tier", "informerd-node-agent"]);
    }
}
