//! The command line of `informerd explain`.

use clap::{Arg, ArgMatches, Command as Clap};

use super::exit::{EXIT_USAGE, Exit};

/// The request to explain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explained {
    /// Path and query.
    pub target: String,
    pub accept: Option<String>,
    pub user_agent: Option<String>,
}

/// Common client programs: name, `Accept`, `User-Agent`.
const PROGRAMS: &[(&str, &str, &str)] = &[
    (
        "kubectl",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        "kubectl/v1.36.3 (linux/amd64) kubernetes/f9f9b2d",
    ),
    ("kubectl-json", "application/json", "kubectl/v1.36.3 (linux/amd64) kubernetes/f9f9b2d"),
    (
        "client-go",
        "application/vnd.kubernetes.protobuf,application/json",
        "manager/v0.0.0 (linux/amd64) kubernetes/$Format",
    ),
    ("python", "application/json", "OpenAPI-Generator/37.0.2/python"),
    ("curl", "*/*", "curl/8.14.1"),
];

pub(super) fn command() -> Clap {
    Clap::new("explain")
        .about(
            "Show how the daemon on this machine would answer a GET request, and why, without sending it",
        )
        .arg(
            Arg::new("url")
                .value_name("URL")
                .required(true)
                .help("such as '/api/v1/pods?limit=500', with or without scheme and host in front"),
        )
        .arg(
            Arg::new("accept")
                .long("accept")
                .value_name("media types")
                .help("its Accept header [default: application/json]"),
        )
        .arg(Arg::new("user-agent").long("user-agent").value_name("text").help("its User-Agent header"))
        .arg(
            Arg::new("as")
                .long("as")
                .value_name("program")
                .value_parser(PROGRAMS.iter().map(|(name, ..)| *name).collect::<Vec<_>>())
                .help("both headers as this program sends them; kubectl-json stands for kubectl -o json, yaml, name and jsonpath"),
        )
}

pub(super) fn explained(matches: &ArgMatches) -> Result<Explained, Exit> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let url = text("url").unwrap_or_default();
    let target = match url.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("", |at| &rest[at..]),
        None => &url,
    };
    let accept = text("accept");
    let user_agent = text("user-agent");
    let visible = |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if !target.starts_with('/') || !visible(target) || target.contains(' ') {
        return Err(Exit { code: EXIT_USAGE, text: format!("{url:?} is no URL with a path\n") });
    }
    if let Some(wrong) = [&accept, &user_agent].into_iter().flatten().find(|text| !visible(text)) {
        return Err(Exit { code: EXIT_USAGE, text: format!("{wrong:?} is no value of a header\n") });
    }
    let program = text("as").and_then(|name| PROGRAMS.iter().find(|(known, ..)| *known == name));
    let (of_program, agent) = program.map_or(("application/json", None), |(_, accept, agent)| (*accept, Some(*agent)));
    Ok(Explained {
        target: target.to_owned(),
        accept: accept.or_else(|| Some(of_program.to_owned())),
        user_agent: user_agent.or_else(|| agent.map(str::to_owned)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Command, parse};
    use super::*;

    fn asked(words: &[&str]) -> Result<Explained, u8> {
        let line = ["informerd", "explain"].iter().chain(words);
        match parse(line.copied()).map_err(|exit| exit.code)?.command {
            Command::Explain(explained) => Ok(explained),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn urls_and_programs() {
        let plain = asked(&["/api/v1/pods?limit=500"]).unwrap();
        assert_eq!((plain.target.as_str(), plain.user_agent), ("/api/v1/pods?limit=500", None));
        assert_eq!(plain.accept.as_deref(), Some("application/json"));
        let full = asked(&["https://10.0.0.1:6443/api/v1/nodes", "--as", "kubectl", "--user-agent", "x"]).unwrap();
        assert_eq!((full.target.as_str(), full.user_agent.as_deref()), ("/api/v1/nodes", Some("x")));
        assert!(full.accept.unwrap().contains("as=Table"));
        for wrong in ["pods", "https://host", "/a b", "/a\r\nb"] {
            assert_eq!(asked(&[wrong]), Err(EXIT_USAGE), "{wrong}");
        }
        assert_eq!(asked(&["/a", "--accept", "a\nb"]), Err(EXIT_USAGE));
        assert!(asked(&["/a", "--as", "nobody"]).is_err());
    }
}
