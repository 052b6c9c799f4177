//! The API server's own record of who asked for what, and when.

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

/// One request, as the audit log has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub verb: String,
    pub user: User,
    pub object_ref: Option<Object>,
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: Timestamp,
    #[serde(rename = "stageTimestamp")]
    pub at: Timestamp,
    pub stage: String,
    pub response_status: Option<Response>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct User {
    pub username: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Object {
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Response {
    pub code: u16,
}

impl Request {
    fn object(&self) -> Object {
        self.object_ref.clone().unwrap_or_default()
    }

    /// Whether it is `verb` of `resource` (with `/subresource`) `name`; empty is any.
    pub fn is(&self, verb: &str, resource: &str, name: &str) -> bool {
        let object = self.object();
        let kind = if object.subresource.is_empty() {
            object.resource
        } else {
            format!("{}/{}", object.resource, object.subresource)
        };
        (verb.is_empty() || self.verb == verb) && kind == resource && (name.is_empty() || object.name == name)
    }

    /// A change of the cluster, Events and leases apart.
    pub fn is_write(&self) -> bool {
        let object = self.object();
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete")
            && !matches!(object.resource.as_str(), "events" | "leases")
    }

    /// A read other than a watch, leases apart.
    pub fn is_read(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list") && self.object().resource != "leases"
    }

    pub fn show(&self) -> String {
        let object = self.object();
        let sub = if object.subresource.is_empty() { String::new() } else { format!("/{}", object.subresource) };
        format!("{} {}{sub} {}", self.verb, object.resource, object.name)
    }
}

/// The requests about `namespace` between two instants that succeeded, in order.
pub fn read(file: &str, namespace: &str, from: Timestamp, to: Timestamp) -> Vec<Request> {
    let text = std::fs::read_to_string(file)
        .unwrap_or_else(|error| panic!("{file}: {error}; set AUDIT_LOG to the API server's audit log"));
    let requests = text
        .lines()
        .filter(|line| line.contains(namespace))
        .filter_map(|line| serde_json::from_str::<Request>(line).ok());
    let mut requests: Vec<_> = requests
        .filter(|request| request.stage == "ResponseComplete" || request.verb == "watch")
        .filter(|request| request.object().namespace == namespace)
        .filter(|request| request.response_status.as_ref().is_some_and(|response| response.code < 300))
        .filter(|request| request.at >= from && request.at <= to)
        .collect();
    requests.sort_by_key(|request| request.at);
    requests
}

/// Those of the operator of `namespace`.
pub fn of_operator(requests: &[Request], namespace: &str) -> Vec<Request> {
    let prefix = format!("system:serviceaccount:{namespace}:");
    requests.iter().filter(|request| request.user.username.starts_with(&prefix)).cloned().collect()
}
