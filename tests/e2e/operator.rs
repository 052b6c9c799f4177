//! An operator process of this build (or of `OPERATOR_BINARY`), with the rights that the chart gives to its ServiceAccount and no others.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command as Blocking, Stdio};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde_json::json;
use tokio::process::{Child, Command};

/// A running operator. It is killed when dropped.
pub struct Operator {
    child: Child,
    /// Its name in the Lease.
    pub identity: String,
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
        let log = File::options().create(true).append(true).open(self.log_of(identity)).unwrap();
        let listen = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let program = std::env::var("OPERATOR_BINARY");
        let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_modelrollout-operator").to_owned());
        let child = Command::new(program)
            .args(["--namespace", &self.namespace, "--lease-namespace", &self.namespace, "--identity", identity])
            .args(["--traffic-settle", "1s", "--prometheus-url", &self.prometheus, "--listen", &listen.to_string()])
            .args(["--log-format", "json", "--log-level", "info,modelrollout=debug"])
            .env("KUBECONFIG", self.folder.join("kubeconfig"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Operator { child, identity: identity.to_owned() }
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
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// SIGKILL: it has no chance to do anything.
    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGTERM. Does not wait.
    pub fn terminate(&self) {
        let id = self.pid().to_string();
        assert!(Blocking::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// Waits for its end, and asserts that it was a good one.
    pub async fn ended(&mut self) {
        let status = tokio::time::timeout(Duration::from_secs(10), self.child.wait()).await;
        assert!(status.expect("it ends within 10 s").unwrap().success());
    }

    /// Asserts that it did not end by itself.
    pub fn check_running(&mut self) {
        let status = self.child.try_wait().unwrap();
        assert!(status.is_none(), "{} ended by itself: {status:?}", self.identity);
    }
}
