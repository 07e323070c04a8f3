//! The files: their format, and how several become one. Fields and rules are those of client-go's `clientcmd`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::error::KubeconfigError;
use super::yaml::first_document;

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub(super) server: String,
    pub(super) tls_server_name: String,
    pub(super) insecure_skip_tls_verify: bool,
    pub(super) certificate_authority: String,
    pub(super) certificate_authority_data: String,
    pub(super) proxy_url: String,
    pub(super) disable_compression: bool,
    #[serde(deserialize_with = "elements")]
    pub(super) extensions: Vec<Extension>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Extension {
    pub(super) name: String,
    pub(super) extension: Value,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct User {
    pub(super) client_certificate: String,
    pub(super) client_certificate_data: String,
    pub(super) client_key: String,
    pub(super) client_key_data: String,
    pub(super) token: String,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: String,
    #[serde(rename = "as")]
    pub(super) impersonate: String,
    #[serde(rename = "as-uid")]
    pub(super) impersonate_uid: String,
    #[serde(rename = "as-groups", deserialize_with = "elements")]
    pub(super) impersonate_groups: Vec<String>,
    #[serde(rename = "as-user-extra")]
    pub(super) impersonate_extra: BTreeMap<String, Texts>,
    pub(super) username: String,
    pub(super) password: String,
    pub(super) auth_provider: Option<Provider>,
    pub(super) exec: Option<Exec>,
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct Texts(#[serde(deserialize_with = "elements")] pub(super) Vec<String>);

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Provider {
    pub(super) name: String,
    pub(super) config: BTreeMap<String, String>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Exec {
    pub(super) command: String,
    #[serde(deserialize_with = "elements")]
    pub(super) args: Vec<String>,
    #[serde(deserialize_with = "elements")]
    pub(super) env: Vec<Variable>,
    pub(super) api_version: String,
    pub(super) install_hint: String,
    pub(super) provide_cluster_info: bool,
    pub(super) interactive_mode: String,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Context {
    pub(super) cluster: String,
    pub(super) user: String,
    pub(super) namespace: String,
}

/// All files as one.
#[derive(Default)]
pub(super) struct Merged {
    pub(super) clusters: BTreeMap<String, Cluster>,
    pub(super) users: BTreeMap<String, User>,
    pub(super) contexts: BTreeMap<String, Context>,
    pub(super) current_context: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    #[serde(deserialize_with = "elements")]
    clusters: Vec<NamedCluster>,
    #[serde(deserialize_with = "elements")]
    users: Vec<NamedUser>,
    #[serde(deserialize_with = "elements")]
    contexts: Vec<NamedContext>,
    #[serde(rename = "current-context")]
    current_context: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedContext {
    name: String,
    context: Context,
}

// === impl Merged ===

impl Merged {
    /// Reads the files in their order. The first one that has a name, or a current context, decides it.
    ///
    /// # Errors
    /// One cannot be read, or is no kubeconfig.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self, KubeconfigError> {
        let mut merged = Self::default();
        for path in paths {
            merged.add(File::read(path).map_err(|error| KubeconfigError(format!("{}: {error}", path.display())))?);
        }
        Ok(merged)
    }

    fn add(&mut self, file: File) {
        for NamedCluster { name, cluster } in file.clusters {
            self.clusters.entry(name).or_insert(cluster);
        }
        for NamedUser { name, user } in file.users {
            self.users.entry(name).or_insert(user);
        }
        for NamedContext { name, context } in file.contexts {
            self.contexts.entry(name).or_insert(context);
        }
        if self.current_context.is_empty() {
            self.current_context = file.current_context;
        }
    }
}

// === impl File ===

impl File {
    fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        let mut file = Self::parse(&decode(&bytes)?)?;
        // As kubectl, which makes them absolute: they are of the directory of the file that names them.
        let directory = std::path::absolute(path).map_err(|error| error.to_string())?;
        let directory = directory.parent().unwrap_or(Path::new("/"));
        let resolve = |path: &mut String| {
            if !path.is_empty() && Path::new(path.as_str()).is_relative() {
                *path = directory.join(path.as_str()).display().to_string();
            }
        };
        file.clusters.iter_mut().for_each(|named| resolve(&mut named.cluster.certificate_authority));
        for NamedUser { user, .. } in &mut file.users {
            resolve(&mut user.client_certificate);
            resolve(&mut user.client_key);
            resolve(&mut user.token_file);
            // A command without a slash is looked up in PATH.
            user.exec.iter_mut().filter(|exec| exec.command.contains('/')).for_each(|exec| resolve(&mut exec.command));
        }
        Ok(file)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let document = first_document(text)?;
        if document.is_null() {
            return Ok(Self::default());
        }
        if !document.is_object() {
            return Err("this is no kubeconfig".to_owned());
        }
        let file: Self = serde_json::from_value(without_nulls(document)).map_err(|error| without_value(&error))?;
        if !matches!(file.kind.as_str(), "" | "Config") || !matches!(file.api_version.as_str(), "" | "v1") {
            return Err(format!("no kubeconfig, but a {} of {}", file.kind, file.api_version));
        }
        let names = [
            ("clusters", file.clusters.iter().map(|named| &named.name).collect::<Vec<_>>()),
            ("users", file.users.iter().map(|named| &named.name).collect()),
            ("contexts", file.contexts.iter().map(|named| &named.name).collect()),
        ];
        for (list, names) in names {
            let mut seen = BTreeSet::new();
            if let Some(name) = names.into_iter().find(|name| !seen.insert(*name)) {
                return Err(format!("{list}: the name {name:?} is there twice"));
            }
        }
        Ok(file)
    }
}

/// What is wrong, without the value: it may be a token that stands in a wrong place, or that YAML takes for a number.
fn without_value(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let value = text.find(['`', '"']).zip(text.rfind(", expected ")).filter(|(begin, end)| begin < end);
    match value {
        Some((begin, end)) => format!("{}{}", text[..begin].trim_end(), &text[end..]),
        None => text,
    }
}

/// A member that is null is the same as none, except in what is passed on as it is.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter(|member| !member.1.is_null());
            let taken = |value, name: &str| if name == "extension" { value } else { without_nulls(value) };
            Value::Object(kept.map(|(name, value)| (name.clone(), taken(value, &name))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        value => value,
    }
}

/// In a list, null is the empty value.
fn elements<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let elements = Vec::<Option<T>>::deserialize(from)?;
    Ok(elements.into_iter().map(Option::unwrap_or_default).collect())
}

/// The text of a file, which may be UTF-16 if it begins with a byte order mark.
fn decode(bytes: &[u8]) -> Result<String, String> {
    let invalid = |what: &str| format!("this is no {what}");
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let (units, rest) = bytes.as_chunks::<2>();
        let text = String::from_utf16(&units.iter().map(|pair| unit(*pair)).collect::<Vec<_>>());
        text.ok().filter(|_| rest.is_empty()).ok_or_else(|| invalid("UTF-16"))
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => String::from_utf8(rest.to_vec()).map_err(|_| invalid("UTF-8")),
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
