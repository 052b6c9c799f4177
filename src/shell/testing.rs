//! Small objects for the tests of this part.

use crate::api::ModelRollout;

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
