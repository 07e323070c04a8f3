//! The command line of `informerd get` and `informerd watch`. They take no settings of the daemon.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command as Clap};
use informerd_cli::{Address, Ask, Output, Server, Token};

use super::exit::{EXIT_USAGE, Exit};
use crate::config::parse_duration;

const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn command(name: &'static str, about: &'static str) -> Clap {
    let value = |name: &'static str, form: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(form).help(help)
    };
    Clap::new(name)
        .about(about)
        .arg(
            Arg::new("what")
                .value_name("RESOURCE")
                .required(true)
                .help("such as pods, deployments.apps or deployments.v1.apps"),
        )
        .arg(Arg::new("name").value_name("NAME").help("only the object of this name"))
        .next_help_heading("Objects")
        .arg(value("namespace", "name", "only this namespace, instead of all").short('n'))
        .arg(
            Arg::new("all-namespaces")
                .long("all-namespaces")
                .short('A')
                .action(ArgAction::SetTrue)
                .conflicts_with("namespace")
                .help("all namespaces, which is the default"),
        )
        .arg(value("selector", "labels", "label selector, such as app=web").short('l'))
        .arg(value("field-selector", "fields", "field selector, such as spec.nodeName=node-1"))
        .arg(value("output", "json|name|key", "what to print for each object [default: key]").short('o'))
        .next_help_heading("Connection")
        .arg(
            value(
                "address",
                "address",
                "address of informerd: http://ADDRESS:PORT, https://ADDRESS:PORT or unix:///PATH [default: http://127.0.0.1:8001]",
            )
            .env("INFORMERD_ADDRESS"),
        )
        .arg(value("kubeconfig", "path", "kubeconfig with the address of informerd and credentials"))
        .arg(value("context", "name", "context of the kubeconfig, instead of its current one").requires("kubeconfig"))
        .arg(value("ca-file", "path", "the CA of an https:// address [default: the system's]"))
        .arg(value("token", "token", "bearer token").conflicts_with("token-file"))
        .arg(value("token-file", "path", "file with a bearer token, read for every connection"))
        .arg(value("client-certificate", "path", "client certificate, with its chain").requires("client-key"))
        .arg(value("client-key", "path", "key of the client certificate").requires("client-certificate"))
        .arg(value("timeout", "duration", "how long to wait for an answer of informerd [default: 10s]"))
}

pub(super) fn ask(matches: &ArgMatches) -> Result<Ask, Exit> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let wrong = |flag: &str, error: &dyn Display| Exit { code: EXIT_USAGE, text: format!("--{flag}: {error}\n") };
    let address = text("address").map(|address| address.parse::<Address>()).transpose();
    let path = |name: &str| text(name).map(PathBuf::from);
    let server = Server {
        address: address.map_err(|error| wrong("address", &error))?,
        kubeconfig: path("kubeconfig"),
        context: text("context"),
        ca_file: path("ca-file"),
        token: text("token").map(Token),
        token_file: path("token-file"),
        certificate: path("client-certificate").zip(path("client-key")),
    };
    let output = text("output").map_or(Ok(Output::Key), |text| text.parse());
    let output = output.map_err(|error: String| wrong("output", &error))?;
    let mut resource = text("what").unwrap_or_default();
    let mut name = text("name");
    // As kubectl accepts it: pods/web-1.
    if let Some((kind, of)) = resource.clone().split_once('/') {
        if name.is_some() || kind.is_empty() || of.is_empty() {
            return Err(Exit { code: EXIT_USAGE, text: format!("{resource:?} names no resource\n") });
        }
        name = Some(of.to_owned());
        kind.clone_into(&mut resource);
    }
    let timeout = text("timeout").map_or(Ok(TIMEOUT), |text| match parse_duration(&text) {
        Ok(timeout) if timeout.is_zero() => Err("without a wait there is no answer".to_owned()),
        parsed => parsed,
    });
    Ok(Ask {
        timeout: timeout.map_err(|error| wrong("timeout", &error))?,
        server,
        resource,
        name,
        namespace: text("namespace").filter(|namespace| !namespace.is_empty()),
        labels: text("selector").unwrap_or_default(),
        fields: text("field-selector").unwrap_or_default(),
        output,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Command, parse};
    use super::*;

    fn asked(line: &str) -> Result<Ask, u8> {
        match parse(std::iter::once("informerd").chain(line.split_whitespace())).map_err(|exit| exit.code)?.command {
            Command::Get(ask) | Command::Watch(ask) => Ok(ask),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn asks() {
        let ask = asked("watch pods -n default -l app=x -o json --address unix:///s").unwrap();
        assert_eq!(
            (ask.resource.as_str(), ask.namespace.as_deref(), ask.labels.as_str()),
            ("pods", Some("default"), "app=x")
        );
        assert_eq!((ask.output, ask.server.address), (Output::Json, Some("unix:///s".parse().unwrap())));
        let ask = asked("get deployments.apps web --field-selector a=b --address http://localhost:1").unwrap();
        assert_eq!(
            (ask.resource.as_str(), ask.name.as_deref(), ask.fields.as_str()),
            ("deployments.apps", Some("web"), "a=b")
        );
        assert_eq!((ask.output, ask.namespace), (Output::Key, None));
        assert_eq!(asked("get pods/web").unwrap().name.as_deref(), Some("web"));
        let server = asked("get pods --kubeconfig k --context c --ca-file a --token-file t").unwrap().server;
        assert_eq!((server.address, server.kubeconfig, server.context), (None, Some("k".into()), Some("c".into())));
        assert_eq!((server.ca_file, server.token_file, server.token), (Some("a".into()), Some("t".into()), None));
        let waits = ["get pods", "watch pods --timeout 500ms"].map(|line| asked(line).unwrap().timeout.as_millis());
        assert_eq!(waits, [10_000, 500]);
        let server = asked("get pods --client-certificate c --client-key k --token t").unwrap().server;
        assert_eq!((server.certificate, server.token), (Some(("c".into(), "k".into())), Some(Token("t".into()))));
    }

    #[test]
    fn mistakes() {
        for line in [
            "get",
            "watch pods -o yaml",
            "watch pods --address localhost",
            "get pods a b",
            "get pods/",
            "get pods/a b",
            "get pods -A -n x",
            "get pods --client-key k",
            "get pods --token t --token-file t",
            "get pods --context c",
            "get pods --timeout 5",
            "get pods --timeout 0s",
            "get pods --listen http://127.0.0.1:1",
        ] {
            assert_eq!(asked(line), Err(EXIT_USAGE), "{line}");
        }
    }
}
