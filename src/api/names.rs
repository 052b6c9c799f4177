//! Every name that leaves the process: annotations, labels, finalizer, field managers, object suffixes.

/// Prefix of our own annotations and labels.
pub const DOMAIN: &str = "modelrollout.dev";

/// Act: `approve=<attempt>/<stage>` passes an approval of that stage, or its missing samples.
pub const ANNOTATION_APPROVE: &str = "modelrollout.dev/approve";
/// Act: `rollback=<reason>` goes back to the previous color.
pub const ANNOTATION_ROLLBACK: &str = "modelrollout.dev/rollback";
/// Act: `promote=<attempt>` skips the remaining stages and missing samples.
pub const ANNOTATION_PROMOTE: &str = "modelrollout.dev/promote";
/// Act: `retry=<token>` opens a new attempt of a revision that was rolled back.
pub const ANNOTATION_RETRY: &str = "modelrollout.dev/retry";

/// On a Pod template: `<model name>@<model version>` that its Pods serve.
pub const ANNOTATION_MODEL: &str = "modelrollout.dev/model";

/// The Deployment controller's own count of template changes.
pub const ANNOTATION_DEPLOYMENT_REVISION: &str = "deployment.kubernetes.io/revision";

/// Keeps the object until traffic is whole again and our own objects are gone.
pub const FINALIZER: &str = "modelrollout.dev/traffic";

/// Label on the objects that we create.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label of our Jobs and their Pods: the uid of their ModelRollout.
pub const LABEL_ROLLOUT_UID: &str = "modelrollout.dev/rollout-uid";
/// Value of [`LABEL_MANAGED_BY`].
pub const MANAGED_BY: &str = "modelrollout";

/// Field manager of the status subresource.
pub const MANAGER_STATUS: &str = "modelrollout.dev/status";
/// Field manager of Ingress writes.
pub const MANAGER_TRAFFIC: &str = "modelrollout.dev/traffic";
/// Field manager of the scale subresource.
pub const MANAGER_SCALE: &str = "modelrollout.dev/scale";
/// Field manager of Jobs that judge.
pub const MANAGER_JOBS: &str = "modelrollout.dev/jobs";
/// Field manager of the finalizer and of removing acts.
pub const MANAGER_META: &str = "modelrollout.dev/meta";

/// Prefix of the nginx annotation dialect.
pub const NGINX_PREFIX: &str = "nginx.ingress.kubernetes.io/";
/// Marks an Ingress as a canary of another one with the same host and path.
pub const NGINX_CANARY: &str = "nginx.ingress.kubernetes.io/canary";
/// Share of requests that a canary takes, in percent.
pub const NGINX_CANARY_WEIGHT: &str = "nginx.ingress.kubernetes.io/canary-weight";
/// Header that names users of a canary.
pub const NGINX_CANARY_HEADER: &str = "nginx.ingress.kubernetes.io/canary-by-header";
/// Pattern that the value of that header must match.
pub const NGINX_CANARY_HEADER_PATTERN: &str = "nginx.ingress.kubernetes.io/canary-by-header-pattern";
/// The annotation that named a class before `spec.ingressClassName` existed.
pub const ANNOTATION_INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

/// Longest object name that Kubernetes accepts for an Ingress.
const MAX_NAME: usize = 253;

/// Name of the canary Ingress of the rollout `name`.
pub fn canary_name(name: &str) -> String {
    suffixed(name, "-canary")
}

/// Name of the anchor Ingress of the rollout `name`.
pub fn anchor_name(name: &str) -> String {
    suffixed(name, "-anchor")
}

/// Name of the Job of `gate` of the rollout `name`, for the stage that `key` stands for. At most 63 characters: Pods carry
/// it as a label.
pub fn job_name(name: &str, gate: &str, key: &str) -> String {
    let head: String = format!("{name}-{gate}").replace('.', "-").chars().take(63 - 11).collect();
    format!("{}-{}", head.trim_end_matches('-'), hash(&format!("{name}/{gate}/{key}"), 5))
}

/// `name` + `suffix`; a name that would be too long is cut and gets a hash of the whole, so two long names stay apart.
fn suffixed(name: &str, suffix: &str) -> String {
    if name.len() + suffix.len() <= MAX_NAME {
        return format!("{name}{suffix}");
    }
    let hash = hash(name, 4);
    let keep = MAX_NAME - suffix.len() - hash.len() - 1;
    let head: String = name.chars().take(keep).collect();
    format!("{}-{hash}{suffix}", head.trim_end_matches(['-', '.']))
}

/// The first `bytes` bytes of a hash of `text`, in hexadecimal.
fn hash(text: &str, bytes: usize) -> String {
    use sha2::{Digest as _, Sha256};
    hex(&Sha256::digest(text.as_bytes()), bytes)
}

/// The first `bytes` bytes in hexadecimal.
pub fn hex(data: &[u8], bytes: usize) -> String {
    use std::fmt::Write as _;
    data.iter().take(bytes).fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_is_only_suffixed() {
        assert_eq!(canary_name("bot"), "bot-canary");
        assert_eq!(anchor_name("bot"), "bot-anchor");
    }

    #[test]
    fn a_job_has_a_name_of_its_own_for_each_gate_and_stage() {
        let name = job_name("support.bot", "schema", "1.5");
        assert!(name.starts_with("support-bot-schema-"), "{name}");
        assert_ne!(name, job_name("support.bot", "schema", "1.25"));
        assert_ne!(name, job_name("support.bot", "other", "1.5"));
        assert!(job_name(&"a".repeat(200), "schema", "1.5").len() <= 63);
    }

    #[test]
    fn long_names_fit_and_stay_apart() {
        let one = canary_name(&format!("{}x", "a".repeat(252)));
        let two = canary_name(&format!("{}y", "a".repeat(252)));
        assert!(one.len() <= 253 && two.len() <= 253);
        assert_ne!(one, two);
        assert!(one.ends_with("-canary"));
    }
}
