//! Containers as the kubelet would start them, as processes: with exactly the arguments, the environment and the files
//! that the pod template on the apiserver says, and nothing else.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::process::{Child, Command};

use super::cluster::Cluster;
use super::isolated;

/// Where in-cluster programs look for their credentials.
pub const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// One pod: its volumes are made once and shared by its containers.
pub struct Pod {
    namespace: String,
    spec: Value,
    /// What `fieldRef` finds.
    fields: BTreeMap<&'static str, String>,
    volumes: BTreeMap<String, PathBuf>,
    /// The apiserver's port, as the Service `kubernetes` would have it.
    port: String,
    dir: tempfile::TempDir,
}

/// One container, ready to be started.
pub struct Container {
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Path inside, directory outside, read-only.
    mounts: Vec<(String, PathBuf, bool)>,
    user: u32,
    log: PathBuf,
}

// === impl Pod ===

impl Pod {
    /// Of the workload's template as the apiserver has it, defaults filled in.
    pub async fn of(cluster: &Cluster, kind: &str, namespace: &str, name: &str) -> Self {
        let text = cluster.kubectl_ok(["get", kind, name, "--namespace", namespace, "--output=json"]).await;
        let workload: Value = serde_json::from_str(&text).expect("JSON");
        let spec = workload["spec"]["template"]["spec"].clone();
        let fields = BTreeMap::from([
            ("metadata.namespace", namespace.to_owned()),
            ("metadata.name", format!("{name}-0")),
            ("spec.nodeName", "node-1".to_owned()),
            ("status.podIP", "127.0.0.1".to_owned()),
            ("status.hostIP", "127.0.0.1".to_owned()),
        ]);
        let port = cluster.info.server.rsplit_once(':').expect("a port").1.to_owned();
        let dir = tempfile::Builder::new().prefix("pod-").tempdir().expect("a directory");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("permissions");
        let mut pod = Self { namespace: namespace.to_owned(), spec, fields, volumes: BTreeMap::new(), port, dir };
        pod.make_volumes(cluster).await;
        pod
    }

    async fn make_volumes(&mut self, cluster: &Cluster) {
        for volume in self.spec["volumes"].as_array().cloned().unwrap_or_default() {
            let dir = self.new_volume(volume["name"].as_str().expect("a name"));
            if let Some(source) = volume.get("configMap") {
                self.config_map(cluster, &dir, source, &source["name"]).await;
            } else if let Some(source) = volume.get("secret") {
                self.secret(cluster, &dir, source["secretName"].as_str().expect("a name")).await;
            } else if let Some(sources) = volume["projected"]["sources"].as_array() {
                for source in sources {
                    self.projected(cluster, &dir, source).await;
                }
            } else if volume.get("emptyDir").is_some() {
                std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).expect("permissions");
            } else {
                panic!("no such volume here: {volume}");
            }
        }
        // What the ServiceAccount admission plugin adds to every pod that does not refuse it.
        if self.spec["automountServiceAccountToken"] != false {
            let dir = self.new_volume(ACCOUNT);
            let token = self.token(cluster, None).await;
            std::fs::write(dir.join("token"), token).expect("written");
            std::fs::copy(&cluster.info.ca, dir.join("ca.crt")).expect("copied");
            readable(&dir.join("ca.crt"));
            std::fs::write(dir.join("namespace"), &self.namespace).expect("written");
        }
    }

    fn new_volume(&mut self, name: &str) -> PathBuf {
        let dir = self.dir.path().join(format!("volume-{}", self.volumes.len()));
        std::fs::create_dir(&dir).expect("made");
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).expect("permissions");
        self.volumes.insert(name.to_owned(), dir.clone());
        dir
    }

    async fn projected(&self, cluster: &Cluster, dir: &Path, source: &Value) {
        if let Some(token) = source.get("serviceAccountToken") {
            let text = self.token(cluster, token["audience"].as_str()).await;
            std::fs::write(dir.join(token["path"].as_str().expect("a path")), text).expect("written");
        } else if let Some(map) = source.get("configMap") {
            self.config_map(cluster, dir, map, &map["name"]).await;
        } else if let Some(items) = source["downwardAPI"]["items"].as_array() {
            for item in items {
                let value = &self.fields[item["fieldRef"]["fieldPath"].as_str().expect("a field")];
                std::fs::write(dir.join(item["path"].as_str().expect("a path")), value).expect("written");
            }
        } else {
            panic!("no such source here: {source}");
        }
    }

    async fn config_map(&self, cluster: &Cluster, dir: &Path, source: &Value, name: &Value) {
        let name = name.as_str().expect("a name");
        let text = cluster
            .kubectl_ok(["get", "configmap", name, "--namespace", &self.namespace, "--output=jsonpath={.data}"])
            .await;
        let data: BTreeMap<String, String> = serde_json::from_str(&text).expect("a ConfigMap with data");
        match source["items"].as_array() {
            None => data.iter().for_each(|(key, value)| std::fs::write(dir.join(key), value).expect("written")),
            Some(items) => {
                for item in items {
                    let value = &data[item["key"].as_str().expect("a key")];
                    std::fs::write(dir.join(item["path"].as_str().expect("a path")), value).expect("written");
                }
            }
        }
    }

    async fn secret(&self, cluster: &Cluster, dir: &Path, name: &str) {
        let template = "go-template={{range $k, $v := .data}}{{$k}} {{$v}}{{\"\\n\"}}{{end}}";
        let text =
            cluster.kubectl_ok(["get", "secret", name, "--namespace", &self.namespace, "--output", template]).await;
        for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            use base64::Engine as _;
            let value = base64::engine::general_purpose::STANDARD.decode(value).expect("base64");
            std::fs::write(dir.join(key), value).expect("written");
        }
    }

    async fn token(&self, cluster: &Cluster, audience: Option<&str>) -> String {
        let account = self.spec["serviceAccountName"].as_str().unwrap_or("default").to_owned();
        let mut args = vec!["create".to_owned(), "token".to_owned(), account, "--namespace".to_owned()];
        args.push(self.namespace.clone());
        args.extend(audience.map(|audience| format!("--audience={audience}")));
        cluster.kubectl_ok(args).await.trim().to_owned()
    }

    /// The files of a volume, the ServiceAccount's by its mount path.
    pub fn volume(&self, name: &str) -> &Path {
        &self.volumes[name]
    }

    /// The container of this name, also among the init containers, where sidecars are.
    pub fn container(&self, name: &str) -> Container {
        let all = ["initContainers", "containers"].iter().filter_map(|list| self.spec[list].as_array()).flatten();
        let spec = all.clone().find(|container| container["name"] == name);
        let spec = spec.unwrap_or_else(|| panic!("no container {name} in {}", self.spec));
        assert!(spec.get("command").is_none(), "{name}: the image's own program is run");
        let env = self.env(spec);
        let mut mounts: Vec<_> = spec["volumeMounts"].as_array().into_iter().flatten().map(mount).collect();
        if self.spec["automountServiceAccountToken"] != false && !mounts.iter().any(|mount| mount.0 == ACCOUNT) {
            mounts.push((ACCOUNT.to_owned(), ACCOUNT.to_owned(), true));
        }
        let user = [&spec["securityContext"]["runAsUser"], &self.spec["securityContext"]["runAsUser"]];
        Container {
            args: expand_all(&spec["args"], &env),
            mounts: mounts.into_iter().map(|(path, name, ro)| (path, self.volumes[&name].clone(), ro)).collect(),
            user: user.iter().find_map(|user| user.as_u64()).and_then(|user| u32::try_from(user).ok()).unwrap_or(0),
            log: self.dir.path().join(format!("{name}.log")),
            env,
        }
    }

    fn env(&self, spec: &Value) -> BTreeMap<String, String> {
        // What the kubelet gives every container; the container's own wins.
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("KUBERNETES_SERVICE_HOST".to_owned(), "127.0.0.1".to_owned()),
            ("KUBERNETES_SERVICE_PORT".to_owned(), self.port.clone()),
            ("KUBERNETES_SERVICE_PORT_HTTPS".to_owned(), self.port.clone()),
        ]);
        for variable in spec["env"].as_array().into_iter().flatten() {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some(field) => self.fields[field].clone(),
                None => expand(variable["value"].as_str().unwrap_or_default(), &env),
            };
            env.insert(variable["name"].as_str().expect("a name").to_owned(), value);
        }
        env
    }
}

fn mount(mount: &Value) -> (String, String, bool) {
    let text = |key: &str| mount[key].as_str().expect("a text").to_owned();
    (text("mountPath"), text("name"), mount["readOnly"] == true)
}

fn expand_all(texts: &Value, env: &BTreeMap<String, String>) -> Vec<String> {
    texts.as_array().into_iter().flatten().map(|text| expand(text.as_str().expect("a text"), env)).collect()
}

/// `$(NAME)`, as the kubelet expands it.
fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    env.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

// === impl Container ===

impl Container {
    /// Starts it with an image that holds this one file: in a root directory with nothing else but the volumes, all of it
    /// read-only save what the manifest says is not, as the user it names.
    pub async fn start_in(&self, image: &Path) -> Process {
        let root = self.log.with_extension("root");
        std::fs::create_dir_all(&root).expect("made");
        std::fs::copy(image, root.join("informerd")).expect("copied");
        std::fs::create_dir_all(root.join("etc")).expect("made");
        // The kubelet writes it; there is no other name service here.
        std::fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n").expect("written");
        for (path, ..) in &self.mounts {
            std::fs::create_dir_all(root.join(&path[1..])).expect("made");
        }
        bind(&root, &root, true).await;
        for (path, outside, read_only) in &self.mounts {
            bind(outside, &root.join(&path[1..]), *read_only).await;
        }
        let user = self.user.to_string();
        let mut command = if isolated::is_root() {
            let mut command = Command::new("chroot");
            command.args([format!("--userspec={user}:{user}"), "--groups=".to_owned()]).arg(&root);
            command
        } else {
            let mut command = Command::new("unshare");
            command.args(["--user", &format!("--map-user={user}"), &format!("--map-group={user}"), "--root"]);
            command.arg(&root);
            command
        };
        command.arg("/informerd");
        self.start(command)
    }

    /// Starts a program of this machine in its place, with its files where it expects them. For one container at a time.
    pub async fn start_program(&self, program: &[String]) -> Process {
        for (path, outside, read_only) in &self.mounts {
            std::fs::create_dir_all(path).expect("made: manifests mount below /run or /var/run");
            bind(outside, Path::new(path), *read_only).await;
        }
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]);
        self.start(command)
    }

    fn start(&self, mut command: Command) -> Process {
        let log = std::fs::File::create(&self.log).expect("a log");
        let child = command
            .args(&self.args)
            .env_clear()
            .envs(&self.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        Process { child, log: self.log.clone() }
    }
}

/// A started container.
pub struct Process {
    pub child: Child,
    log: PathBuf,
}

// === impl Process ===

impl Process {
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

async fn bind(from: &Path, to: &Path, read_only: bool) {
    run(Command::new("mount").arg("--bind").arg(from).arg(to)).await;
    if read_only {
        run(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(to)).await;
    }
}

async fn run(command: &mut Command) {
    let output = command.output().await.expect("a program that is there");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn readable(path: &Path) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).expect("permissions");
}
