//! An operator process of this build (or of `OPERATOR_BINARY`), with the rights that the chart gives to its ServiceAccount and no others.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command as Blocking, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde_json::json;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running operator. It is killed when dropped. One that ends since it lost its lease is started again, as the kubelet
/// does with its Pod: on a machine whose API server stands still for seconds that is the right thing to do.
pub struct Operator {
    /// Its name in the Lease.
    pub identity: String,
    pid: Arc<AtomicU32>,
    restarts: Arc<AtomicU32>,
    kill: Option<oneshot::Sender<()>>,
    life: JoinHandle<ExitStatus>,
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.life.abort();
    }
}

/// A container that ended is started again after this.
const RESTART: Duration = Duration::from_secs(1);

/// From its start to its end, which is not that of its process if the lease was lost.
async fn live(
    launcher: Launcher,
    identity: String,
    (pid, restarts): (Arc<AtomicU32>, Arc<AtomicU32>),
    mut killed: oneshot::Receiver<()>,
) -> ExitStatus {
    loop {
        let mut child = launcher.spawn(&identity);
        pid.store(child.id().unwrap_or_default(), Ordering::SeqCst);
        let status = tokio::select! {
            status = child.wait() => status.unwrap(),
            _ = &mut killed => {
                child.kill().await.unwrap();
                return child.wait().await.unwrap();
            }
        };
        let log = std::fs::read_to_string(launcher.log_of(&identity)).unwrap();
        if !log.trim_end().ends_with("was lost") {
            return status;
        }
        restarts.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(RESTART).await;
    }
}

/// What every operator of one scenario is started with.
#[derive(Clone, Debug)]
pub struct Launcher {
    pub namespace: String,
    pub folder: PathBuf,
    pub prometheus: String,
}

impl Launcher {
    /// Makes a folder for logs, with a kubeconfig of `account`.
    pub async fn new(client: &Client, namespace: &str, account: &str, prometheus: String) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(namespace);
        std::fs::create_dir_all(&folder).unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
        let mut config = serde_json::to_value(Kubeconfig::read().unwrap()).unwrap();
        let current = config["current-context"].clone();
        let contexts = config["contexts"].as_array().unwrap();
        let current = contexts.iter().find(|context| context["name"] == current).expect("a current context");
        let cluster = &current["context"]["cluster"];
        let context = json!({ "cluster": cluster, "user": account, "namespace": namespace });
        config["contexts"] = json!([{ "name": "e2e", "context": context }]);
        config["current-context"] = json!("e2e");
        config["users"] = json!([{ "name": account, "user": { "token": answer.status.unwrap().token } }]);
        std::fs::write(folder.join("kubeconfig"), serde_yaml::to_string(&config).unwrap()).unwrap();
        Self { namespace: namespace.to_owned(), folder, prometheus }
    }

    /// Starts an operator. One that is started again under its old name is what a Pod is that restarts in place.
    pub fn start(&self, identity: &str) -> Operator {
        let (pid, restarts): (Arc<AtomicU32>, Arc<AtomicU32>) = Default::default();
        let (kill, killed) = oneshot::channel();
        let numbers = (Arc::clone(&pid), Arc::clone(&restarts));
        let life = tokio::spawn(live(self.clone(), identity.to_owned(), numbers, killed));
        Operator { identity: identity.to_owned(), pid, restarts, kill: Some(kill), life }
    }

    fn spawn(&self, identity: &str) -> Child {
        let log = File::options().create(true).append(true).open(self.log_of(identity)).unwrap();
        let listen = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let program = std::env::var("OPERATOR_BINARY");
        let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_modelrollout-operator").to_owned());
        Command::new(program)
            .args(["--namespace", &self.namespace, "--lease-namespace", &self.namespace, "--identity", identity])
            .args(["--traffic-settle", "1s", "--prometheus-url", &self.prometheus, "--listen", &listen.to_string()])
            .args(["--log-format", "json", "--log-level", "info,modelrollout=debug"])
            .env("KUBECONFIG", self.folder.join("kubeconfig"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    fn log_of(&self, identity: &str) -> PathBuf {
        self.folder.join(format!("{identity}.log"))
    }

    /// The logs of every operator that was started.
    pub fn logs(&self) -> Vec<(String, String)> {
        let files = std::fs::read_dir(&self.folder).unwrap().map(|file| file.unwrap().path());
        let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap())).collect()
    }
}

impl Operator {
    /// Its process; 0 before it has started.
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::SeqCst)
    }

    /// SIGKILL: it has no chance to do anything.
    pub async fn kill(&mut self) {
        // who has ended already needs no word
        let _ = self.kill.take().map(|kill| kill.send(()));
        let _ = (&mut self.life).await;
    }

    /// SIGTERM. Does not wait.
    pub fn terminate(&self) {
        let id = self.pid().to_string();
        assert!(Blocking::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// Waits for its end, and asserts that it was a good one.
    pub async fn ended(&mut self) {
        let status = tokio::time::timeout(Duration::from_secs(10), &mut self.life).await;
        assert!(status.expect("it ends within 10 s").unwrap().success());
    }

    /// Asserts that it did not end by itself. Gives how often it lost its lease and was started again.
    pub fn check_running(&self) -> u32 {
        assert!(!self.life.is_finished(), "{} ended by itself: its log says why", self.identity);
        self.restarts.load(Ordering::SeqCst)
    }
}
