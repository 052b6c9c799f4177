//! Small objects for the tests of this part.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::stores::Store;
use crate::api::ModelRollout;
use crate::engine::observed::{IngressSeen, PathSeen, PortSeen};

/// An Ingress with one path, to `service`.
pub fn ingress(name: &str, service: &str) -> IngressSeen {
    let path = PathSeen {
        rule: 0,
        index: 0,
        host: None,
        path: Some("/".to_owned()),
        path_type: "Prefix".to_owned(),
        service: Some(service.to_owned()),
        port: Some(PortSeen::Number(80)),
    };
    IngressSeen {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        resource_version: "1".to_owned(),
        created: Timestamp::UNIX_EPOCH,
        deleting: false,
        owner_uid: None,
        class: None,
        annotations: [].into(),
        default_backend: None,
        paths: vec![path],
        tls: Vec::new(),
        managers: Vec::new(),
        rules_by_us: None,
    }
}

/// A filled cache with one object, in namespace `ml`.
pub fn store<T: PartialEq>(name: &str, value: T) -> Store<T> {
    let store = Store::new(&["ml".to_owned()]);
    let name = Some(name.to_owned());
    store.list_begins("ml");
    store.put(&ObjectMeta { namespace: Some("ml".to_owned()), name, ..ObjectMeta::default() }, value);
    store.list_ends("ml");
    store
}

/// A rollout in namespace `ml`, with everything named after its colors.
pub fn rollout(name: &str) -> ModelRollout {
    serde_json::from_value(serde_json::json!({
        "apiVersion": crate::api::API_VERSION,
        "kind": "ModelRollout",
        "metadata": { "name": name, "namespace": "ml", "uid": format!("uid-{name}"), "resourceVersion": "1", "generation": 1 },
        "spec": {
            "blue": { "deploymentName": "bot-blue", "serviceName": "bot-blue",
                "model": { "name": "m", "version": "1" },
                "promptTemplate": { "configMapName": "prompt-1", "version": "v1" } },
            "green": { "deploymentName": "bot-green", "serviceName": "bot-green",
                "model": { "name": "m", "version": "2" } },
            "target": "blue",
            "traffic": { "ingress": { "names": ["bot"] } },
            "stages": [{ "weight": 100, "hold": "5m" }]
        }
    }))
    .unwrap()
}
