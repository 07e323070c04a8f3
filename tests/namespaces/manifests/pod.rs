//! Containers as the kubelet would start them, as processes: with exactly the arguments, the environment and the files
//! that the pod template on the apiserver says, and nothing else.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::process::{Child, Command};

use super::isolated;
use crate::cluster::Cluster;
use crate::support::limited::Group;
use crate::support::tied;
use crate::support::within;

/// Where in-cluster programs look for their credentials.
pub(super) const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// One pod: its volumes are made once and shared by its containers.
pub(super) struct Pod {
    namespace: String,
    name: String,
    spec: Value,
    /// What `fieldRef` finds.
    fields: BTreeMap<String, String>,
    volumes: BTreeMap<String, PathBuf>,
    /// The apiserver's port, as the Service `kubernetes` would have it.
    port: String,
    dir: tempfile::TempDir,
}

/// One container, ready to be started.
#[derive(Clone)]
pub(super) struct Container {
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Path inside, directory outside, read-only.
    mounts: Vec<(String, PathBuf, bool)>,
    user: u32,
    /// What the manifest lets it use at most, in bytes.
    memory: Option<u64>,
    /// Path and port, while which is not answered by 200 no later container is started.
    pub gate: Option<(String, u64)>,
    pub image: String,
    /// Nothing is beside the program but its volumes: not even what every container runtime mounts.
    bare: bool,
    log: PathBuf,
}

// === impl Pod ===

impl Pod {
    /// Of the workload's template as the apiserver has it, defaults filled in.
    pub(super) async fn of(cluster: &Cluster, kind: &str, namespace: &str, name: &str) -> Self {
        Self::try_of(cluster, kind, namespace, name).await.unwrap_or_else(|missing| panic!("{missing} is not there"))
    }

    /// The same, of a pod that the apiserver knows and that was placed on a node, so that tokens are bound to it.
    pub(super) async fn placed(cluster: &Cluster, kind: &str, namespace: &str, name: &str) -> Self {
        Self::place(cluster, kind, namespace, name, crate::support::NODE_NAME).await;
        Self::of(cluster, kind, namespace, name).await
    }

    /// What the controllers and the scheduler do for the first pod of a workload.
    pub(super) async fn place(cluster: &Cluster, kind: &str, namespace: &str, name: &str, node: &str) {
        let path = "--output=jsonpath={.spec.template.spec.serviceAccountName}";
        let account = cluster.kubectl_ok(["get", kind, name, "--namespace", namespace, path]).await;
        let account = if account.is_empty() { "default" } else { &account };
        super::sidecar::create_pod_as(cluster, namespace, &format!("{name}-0"), account, node).await;
    }

    /// Or what the kubelet would wait for before it starts any container.
    pub(super) async fn try_of(cluster: &Cluster, kind: &str, namespace: &str, name: &str) -> Result<Self, String> {
        let text = cluster.kubectl_ok(["get", kind, name, "--namespace", namespace, "--output=json"]).await;
        let workload: Value = serde_json::from_str(&text).expect("JSON");
        Self::made(cluster, namespace, &format!("{name}-0"), &workload["spec"]["template"]).await
    }

    /// The pod of this name, as the apiserver has it.
    pub(super) async fn created(cluster: &Cluster, namespace: &str, name: &str) -> Self {
        let text = cluster.kubectl_ok(["get", "pod", name, "--namespace", namespace, "--output=json"]).await;
        let pod: Value = serde_json::from_str(&text).expect("JSON");
        Self::made(cluster, namespace, name, &pod).await.unwrap_or_else(|missing| panic!("{missing} is not there"))
    }

    async fn made(cluster: &Cluster, namespace: &str, name: &str, pod: &Value) -> Result<Self, String> {
        let spec = pod["spec"].clone();
        let mut fields = BTreeMap::from([
            ("metadata.namespace".to_owned(), namespace.to_owned()),
            ("metadata.name".to_owned(), name.to_owned()),
            ("spec.nodeName".to_owned(), crate::support::NODE_NAME.to_owned()),
            ("status.podIP".to_owned(), "127.0.0.1".to_owned()),
            ("status.hostIP".to_owned(), isolated::HOST_IP.to_owned()),
        ]);
        for (key, value) in pod["metadata"]["annotations"].as_object().into_iter().flatten() {
            let value = value.as_str().expect("a text").to_owned();
            fields.insert(format!("metadata.annotations['{key}']"), value);
        }
        let port = cluster.info.server.rsplit_once(':').expect("a port").1.to_owned();
        let dir = tempfile::Builder::new().prefix("pod-").tempdir().expect("a directory");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("permissions");
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let mut pod = Self { namespace, name, spec, fields, volumes: BTreeMap::new(), port, dir };
        pod.make_volumes(cluster).await?;
        Ok(pod)
    }

    async fn make_volumes(&mut self, cluster: &Cluster) -> Result<(), String> {
        for volume in self.spec["volumes"].as_array().cloned().unwrap_or_default() {
            let dir = self.new_volume(volume["name"].as_str().expect("a name"));
            if let Some(source) = volume.get("configMap") {
                self.config_map(cluster, &dir, source, &source["name"]).await?;
            } else if let Some(source) = volume.get("secret") {
                self.secret(cluster, &dir, source["secretName"].as_str().expect("a name")).await;
            } else if let Some(sources) = volume["projected"]["sources"].as_array() {
                for source in sources {
                    self.projected(cluster, &dir, source).await?;
                }
            } else if let Some(items) = volume["downwardAPI"]["items"].as_array() {
                self.downward(&dir, items);
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
        Ok(())
    }

    fn new_volume(&mut self, name: &str) -> PathBuf {
        let dir = self.dir.path().join(format!("volume-{}", self.volumes.len()));
        std::fs::create_dir(&dir).expect("made");
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).expect("permissions");
        self.volumes.insert(name.to_owned(), dir.clone());
        dir
    }

    async fn projected(&self, cluster: &Cluster, dir: &Path, source: &Value) -> Result<(), String> {
        if let Some(token) = source.get("serviceAccountToken") {
            let text = self.token(cluster, token["audience"].as_str()).await;
            std::fs::write(dir.join(token["path"].as_str().expect("a path")), text).expect("written");
        } else if let Some(map) = source.get("configMap") {
            self.config_map(cluster, dir, map, &map["name"]).await?;
        } else if let Some(items) = source["downwardAPI"]["items"].as_array() {
            self.downward(dir, items);
        } else {
            panic!("no such source here: {source}");
        }
        Ok(())
    }

    fn downward(&self, dir: &Path, items: &[Value]) {
        for item in items {
            let value = &self.fields[item["fieldRef"]["fieldPath"].as_str().expect("a field")];
            std::fs::write(dir.join(item["path"].as_str().expect("a path")), value).expect("written");
        }
    }

    async fn config_map(&self, cluster: &Cluster, dir: &Path, source: &Value, name: &Value) -> Result<(), String> {
        let name = name.as_str().expect("a name");
        let text = cluster
            .kubectl_ok(["get", "configmap", name, "--namespace", &self.namespace, "--output=jsonpath={.data}"])
            .await;
        let data: BTreeMap<String, String> =
            if text.is_empty() { BTreeMap::new() } else { serde_json::from_str(&text).expect("data") };
        match source["items"].as_array() {
            None => data.iter().for_each(|(key, value)| std::fs::write(dir.join(key), value).expect("written")),
            Some(items) => {
                for item in items {
                    let key = item["key"].as_str().expect("a key");
                    let value = data.get(key).ok_or_else(|| format!("{key} of ConfigMap {name}"))?;
                    std::fs::write(dir.join(item["path"].as_str().expect("a path")), value).expect("written");
                }
            }
        }
        Ok(())
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
        // Bound to the pod, if the apiserver knows of it.
        let known = cluster
            .kubectl_ok([
                "get",
                "pod",
                &self.name,
                "--namespace",
                &self.namespace,
                "--ignore-not-found",
                "--output=name",
            ])
            .await;
        if !known.is_empty() {
            args.extend(["--bound-object-kind=Pod".to_owned(), format!("--bound-object-name={}", self.name)]);
        }
        args.extend(audience.map(|audience| format!("--audience={audience}")));
        cluster.kubectl_ok(args).await.trim().to_owned()
    }

    /// The files of a volume, the ServiceAccount's by its mount path.
    pub(super) fn volume(&self, name: &str) -> &Path {
        &self.volumes[name]
    }

    fn specs(&self) -> impl Iterator<Item = &Value> {
        ["initContainers", "containers"].into_iter().filter_map(|list| self.spec[list].as_array()).flatten()
    }

    /// Its containers in the order in which they are started.
    pub(super) fn names(&self) -> Vec<String> {
        self.specs().map(|container| container["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// The container of this name, also among the init containers, where sidecars are.
    pub(super) fn container(&self, name: &str) -> Container {
        let spec = self.specs().find(|container| container["name"] == name);
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
            memory: spec["resources"]["limits"]["memory"].as_str().map(bytes),
            gate: self.gate(spec),
            image: spec["image"].as_str().expect("an image").to_owned(),
            bare: false,
            log: self.dir.path().join(format!("{name}.log")),
            env,
        }
    }

    /// What others wait for, port names looked up.
    fn gate(&self, spec: &Value) -> Option<(String, u64)> {
        let probe = spec["startupProbe"]["httpGet"].as_object()?;
        let ports = spec["ports"].as_array().into_iter().flatten();
        let named = ports.into_iter().find(|port| port["name"] == probe["port"]).map(|port| &port["containerPort"]);
        let port = probe["port"].as_u64().or_else(|| named?.as_u64()).expect("a port");
        Some((probe["path"].as_str().expect("a path").to_owned(), port))
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

/// A quantity of memory.
pub(super) fn bytes(text: &str) -> u64 {
    let (number, unit) = text.split_at(text.len() - 2);
    let factor = match unit {
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => panic!("no such unit here: {text}"),
    };
    number.parse::<u64>().expect("a number") * factor
}

/// `$(NAME)`, as the kubelet expands it.
fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    env.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

// === impl Container ===

impl Container {
    /// The same with nothing beside it, as somebody whom no file knows.
    pub(super) fn bare(self, user: u32) -> Self {
        Self { user, memory: None, bare: true, log: self.log.with_file_name("bare.log"), ..self }
    }

    /// Starts it with an image that holds this one file: in a root directory with nothing else but the volumes, all of it
    /// read-only save what the manifest says is not, as the user it names.
    pub(super) async fn start_in(&self, image: &Path) -> Process {
        let root = self.log.with_extension("root");
        // A restart is with the same files.
        if !root.exists() {
            self.make_root(&root, image).await;
        }
        let user = self.user.to_string();
        let group = self.memory.and_then(|memory| Group::make(usize::try_from(memory).expect("a size")));
        let mut command = tied::command("sh");
        match (&group, self.memory) {
            (Some(group), _) => command.args(["-c", &group.joined()]),
            // Beyond this, allocating fails, which is as deadly as the limit of a cgroup.
            (None, Some(memory)) => command.args(["-c", &format!("exec prlimit --data={} \"$@\"", 3 * memory)]),
            (None, None) => command.args(["-c", "exec \"$@\""]),
        };
        command.arg("sh");
        if isolated::is_root() {
            command.args(["chroot".to_owned(), format!("--userspec={user}:{user}"), "--groups=".to_owned()]).arg(&root);
        } else {
            command.args([
                "unshare",
                "--user",
                &format!("--map-user={user}"),
                &format!("--map-group={user}"),
                "--root",
            ]);
            command.arg(&root);
        }
        command.arg("/informerd");
        self.start(command, group)
    }

    async fn make_root(&self, root: &Path, image: &Path) {
        std::fs::create_dir_all(root).expect("made");
        std::fs::copy(image, root.join("informerd")).expect("copied");
        if !self.bare {
            for directory in ["etc", "proc", "sys/fs/cgroup/memory"] {
                std::fs::create_dir_all(root.join(directory)).expect("made");
            }
            // The kubelet writes it; there is no other name service here.
            std::fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n").expect("written");
        }
        if let Some(memory) = self.memory {
            // As a container sees its own cgroup, in either version.
            for file in ["memory.max", "memory/memory.limit_in_bytes"] {
                std::fs::write(root.join("sys/fs/cgroup").join(file), memory.to_string()).expect("written");
            }
        }
        for (path, ..) in &self.mounts {
            std::fs::create_dir_all(root.join(&path[1..])).expect("made");
        }
        bind(root, root, true).await;
        if !self.bare {
            run(tied::command("mount").args(["--rbind", "/proc"]).arg(root.join("proc"))).await;
        }
        for (path, outside, read_only) in &self.mounts {
            bind(outside, &root.join(&path[1..]), *read_only).await;
        }
    }

    /// Starts a program of this machine in its place, with its files where it expects them. For one container at a time.
    pub(super) async fn start_program(&self, program: &[String]) -> Process {
        for (path, outside, read_only) in &self.mounts {
            std::fs::create_dir_all(path).expect("made: manifests mount below /run or /var/run");
            // The volume of whoever was here before.
            tied::command("umount").args(["--lazy", "--quiet", path]).output().await.expect("umount runs");
            bind(outside, Path::new(path), *read_only).await;
        }
        let mut command = tied::command(&program[0]);
        command.args(&program[1..]);
        self.start(command, None)
    }

    fn start(&self, mut command: Command, group: Option<Group>) -> Process {
        let log = std::fs::File::options().create(true).append(true).open(&self.log).expect("a log");
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
        Process { child, group, log: self.log.clone() }
    }
}

/// A started container.
pub(super) struct Process {
    pub child: Child,
    /// Where the kernel holds it to its memory, if this machine lets a test do so.
    group: Option<Group>,
    log: PathBuf,
}

// === impl Process ===

impl Process {
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// As the kubelet asks it to end, and as the kernel ends it: `TERM` or `KILL`.
    pub(super) async fn signal(&mut self, name: &str) -> std::process::ExitStatus {
        tied::signal(self.child.id().expect("it runs"), name);
        within("the process ends", self.child.wait()).await.expect("it ends")
    }

    /// How often the kernel has ended it for its memory; none where it is not asked to.
    pub(super) fn killed_for_memory(&self) -> u64 {
        self.group.as_ref().map_or(0, Group::killed)
    }
}

impl Drop for Process {
    #[allow(clippy::disallowed_methods, reason = "drop cannot await, and a cgroup goes only when its process is gone")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
        if let Some(group) = &self.group {
            self.child.start_kill().ok();
            for _ in 0..200 {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            group.remove();
        }
    }
}

async fn bind(from: &Path, to: &Path, read_only: bool) {
    run(tied::command("mount").arg("--bind").arg(from).arg(to)).await;
    if read_only {
        run(tied::command("mount").args(["-o", "remount,bind,ro"]).arg(to)).await;
    }
}

async fn run(command: &mut Command) {
    let output = command.output().await.expect("a program that is there");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn readable(path: &Path) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).expect("permissions");
}
