//! A TCP proxy that can be taken away and brought back.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The proxy. Connections end with it.
pub struct Proxy {
    to: String,
    port: u16,
    work: JoinSet<()>,
}

impl Proxy {
    /// A proxy of the base URL `to`.
    pub async fn start(to: &str) -> Self {
        let to = to.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let to = if to.contains(':') { to } else { format!("{to}:80") };
        let mut proxy = Self { to, port: 0, work: JoinSet::new() };
        proxy.open().await;
        proxy
    }

    /// Its own base URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Listens, at the address it has always had.
    pub async fn open(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        self.port = listener.local_addr().unwrap().port();
        let to = self.to.clone();
        self.work.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let to = to.clone();
                connections.spawn(async move {
                    let Ok(mut far) = TcpStream::connect(to).await else { return };
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
    }

    /// Refuses connections and breaks those that are there.
    pub async fn close(&mut self) {
        self.work.shutdown().await;
    }
}
