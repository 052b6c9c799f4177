//! Single requests of a user, each on a new connection.

use std::fmt::Write as _;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cluster::{INGRESS_URL, variable};

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// The model server that answered, as `name@version`; empty if none did.
    pub model: String,
}

impl Answer {
    /// Whether the status is 200.
    pub fn ok(self) -> Result<Self, String> {
        if self.status == 200 { Ok(self) } else { Err(format!("{self:?}")) }
    }
}

/// Asks for `path` of `host`.
pub async fn get(host: &str, path: &str, headers: &[(&str, &str)]) -> Result<Answer, String> {
    let url = variable(INGRESS_URL);
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let address = if address.contains(':') { address.to_owned() } else { format!("{address}:80") };
    let mut stream = TcpStream::connect(&address).await.map_err(|error| format!("{address}: {error}"))?;
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        let _ = write!(request, "{name}: {value}\r\n");
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
    let status = answer.split_whitespace().nth(1).and_then(|text| text.parse().ok());
    let status = status.ok_or_else(|| format!("no HTTP: {answer:.80}"))?;
    let fields = answer.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(": "));
    let model =
        fields.filter(|(name, _)| name.eq_ignore_ascii_case("x-model")).map(|(_, value)| value.to_owned()).next();
    Ok(Answer { status, model: model.unwrap_or_default() })
}
