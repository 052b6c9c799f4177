//! GET and LIST.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::errors::{Fault, Outcome, bad_request, expired, invalid, not_found, plain, too_large};
use super::kinds::Kind;
use super::route::{Target, done};
use super::selector::Selection;
use super::{Answer, Request, Server, Watch};

/// The number of a resourceVersion parameter; none if it is left out.
fn version_of(text: &str) -> Outcome<Option<u64>> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        bad_request(&format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

/// Whether only metadata is asked for, and for one object or a list.
pub(super) fn wants_metadata(accept: &str) -> bool {
    accept.contains("as=PartialObjectMetadata")
}

/// An object's metadata alone.
pub(super) fn metadata_of(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_default(),
    })
}

/// What else than name and namespace a kind can be selected by.
pub(super) fn selectable(kind: &Kind) -> &'static [&'static str] {
    match &*kind.plural {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
            "spec.hostNetwork",
        ],
        "namespaces" => &["status.phase"],
        "replicasets" => &["status.replicas"],
        "jobs" => &["status.successful"],
        "services" => &["spec.clusterIP", "spec.type"],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "type",
            "regarding.kind",
            "regarding.name",
            "regarding.namespace",
            "regarding.uid",
            "regarding.apiVersion",
            "reportingController",
            "source",
            "reportingComponent",
        ],
        _ => &[],
    }
}

impl Server {
    pub(super) fn read(&self, target: &Target, request: &Request) -> Outcome<Answer> {
        let kind = &self.kinds[target.kind];
        let name = target.name.as_deref().unwrap_or_default();
        let asked = version_of(request.query.get("resourceVersion").map_or("", String::as_str))?;
        if let Some(asked) = asked.filter(|asked| *asked > self.version) {
            return Err(too_large(asked, self.version));
        }
        let stored = self.shelves[target.kind].get(&target.namespace, name);
        let stored = stored.ok_or_else(|| not_found(kind.named(), name))?;
        Ok(done(200, shaped(&stored.value, request)))
    }

    pub(super) fn list_or_watch(&self, target: &Target, request: &Request) -> Outcome<Answer> {
        let parameter = |name: &str| request.query.get(name).map_or("", String::as_str);
        let kind = &self.kinds[target.kind];
        let (labels, fields) = (parameter("labelSelector"), parameter("fieldSelector"));
        let selection = Selection::new(labels, fields)?;
        if let Some(field) = selection.unknown_field(selectable(kind)) {
            let said = if kind.custom {
                format!("field label not supported: {field}")
            } else if selectable(kind).is_empty() {
                format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            } else {
                format!("field label not supported: {field}")
            };
            return Err(bad_request(&said));
        }
        if matches!(parameter("watch"), "1" | "true") || request.path.contains("/watch/") {
            let text = parameter("resourceVersion");
            let asked = version_of(text).map_err(|_| {
                plain(&format!(
                    "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
                ))
            })?;
            return self.watch(target, request, asked);
        }
        let asked = version_of(parameter("resourceVersion"))?;
        let namespace = Some(target.namespace.clone()).filter(|it| !it.is_empty());
        let limit: usize = match parameter("limit") {
            "" => 0,
            text => {
                text.parse().map_err(|_| bad_request(&format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))?
            }
        };
        if !parameter("continue").is_empty() && asked.is_some_and(|it| it > 0) {
            return Err(bad_request("specifying resource version is not allowed when using continue"));
        }
        // what is at hand is given as a whole
        let limit = if asked == Some(0) { 0 } else { limit };
        let matching = parameter("resourceVersionMatch");
        if !matching.is_empty() {
            check_matching(matching, asked, parameter("continue"))?;
        }
        if let Some(asked) = asked.filter(|asked| *asked > self.version) {
            return Err(too_large(asked, self.version));
        }
        let shelf = &self.shelves[target.kind];
        let (version, start) = match parameter("continue") {
            "" if matching == "Exact" || (matching.is_empty() && limit > 0 && asked.is_some_and(|it| it > 0)) => {
                let asked = asked.unwrap_or_default();
                if asked < shelf.compacted {
                    return Err(expired(&format!("The provided resource version is too old: {asked}")));
                }
                (asked, None)
            }
            "" => (self.version, None),
            token => {
                let (version, start) = parse_token(token)?;
                if version < shelf.compacted {
                    return Err(expired(
                        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
                    ));
                }
                (version, Some(start))
            }
        };
        let after = start.as_ref().map(|(space, name)| (space.as_str(), name.as_str()));
        // the present is there already; the past is put together
        let all: Vec<Arc<Value>> = if version == self.version || shelf.log.last().is_none_or(|it| it.version <= version)
        {
            shelf.list(namespace.as_deref(), after).map(|it| Arc::clone(&it.value)).collect()
        } else {
            let mut all = shelf.list_at(namespace.as_deref(), version).unwrap_or_default();
            all.retain(|it| after.is_none_or(|after| place(it) > after));
            all
        };
        let total = all.len();
        let mut items = Vec::new();
        let mut seen = 0;
        for object in &all {
            if limit > 0 && items.len() == limit {
                break;
            }
            seen += 1;
            if selection.fits(object) {
                items.push(item(object, kind, request));
            }
        }
        let mut meta = Map::new();
        meta.insert("resourceVersion".into(), version.to_string().into());
        let more = if selection.is_all() { total > seen } else { all[seen..].iter().any(|it| selection.fits(it)) };
        if more {
            let (space, name) = place(&all[seen - 1]);
            meta.insert("continue".into(), token(version, space, name).into());
            if selection.is_all() {
                meta.insert("remainingItemCount".into(), (total - seen).into());
            }
        }
        if kind.custom && !wants_metadata(&request.accept) {
            meta.entry("continue").or_insert_with(|| "".into());
        }
        let (kind_name, api_version) = if wants_metadata(&request.accept) {
            ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned())
        } else {
            (format!("{}List", kind.kind), kind.api_version())
        };
        Ok(done(200, json!({ "kind": kind_name, "apiVersion": api_version, "metadata": meta, "items": items })))
    }

    fn watch(&self, target: &Target, request: &Request, asked: Option<u64>) -> Outcome<Answer> {
        let parameter = |name: &str| request.query.get(name).map_or("", String::as_str);
        let initial = match parameter("sendInitialEvents") {
            "" if !parameter("resourceVersionMatch").is_empty() => {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                let fault = Fault::forbidden("resourceVersionMatch", why);
                return Err(invalid("meta.k8s.io", "ListOptions", "", &[fault]));
            }
            "" => asked.unwrap_or_default() == 0,
            text => {
                let wanted = text == "true" || text == "1";
                if wanted && parameter("resourceVersionMatch") != "NotOlderThan" {
                    let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                    let fault = Fault::forbidden("resourceVersionMatch", detail);
                    return Err(invalid("meta.k8s.io", "ListOptions", "", &[fault]));
                }
                wanted
            }
        };
        if let Some(asked) = asked.filter(|asked| *asked > self.version) {
            return Err(too_large(asked, self.version));
        }
        let bookmarks = matches!(parameter("allowWatchBookmarks"), "1" | "true");
        Ok(Answer::Watch(Watch {
            resource: self.kinds[target.kind].id(),
            namespace: Some(target.namespace.clone()).filter(|it| !it.is_empty()),
            labels: parameter("labelSelector").to_owned(),
            fields: parameter("fieldSelector").to_owned(),
            after: if initial { 0 } else { asked.unwrap_or(self.version) },
            bookmarks,
            timeout_seconds: parameter("timeoutSeconds").parse().ok(),
            metadata_only: wants_metadata(&request.accept),
            initial,
            initial_end: initial && bookmarks && !parameter("sendInitialEvents").is_empty(),
        }))
    }
}

fn check_matching(matching: &str, asked: Option<u64>, token: &str) -> Outcome<()> {
    let fault = match (matching, asked) {
        _ if !token.is_empty() => {
            Fault::forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
        }
        ("Exact" | "NotOlderThan", None) => Fault::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        ("Exact", Some(0)) => Fault::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        ("Exact" | "NotOlderThan", _) => return Ok(()),
        (other, _) => Fault::not_supported(
            "resourceVersionMatch",
            &other.into(),
            &["Exact".to_owned(), "NotOlderThan".to_owned(), String::new()],
        ),
    };
    Err(invalid("meta.k8s.io", "ListOptions", "", &[fault]))
}

/// A response with one object.
pub(super) fn shaped(object: &Value, request: &Request) -> Value {
    if wants_metadata(&request.accept) && !request.accept.contains("MetadataList") {
        metadata_of(object)
    } else {
        object.clone()
    }
}

/// An item of a list: those of built-in kinds do not say what they are.
pub(super) fn item(object: &Value, kind: &Kind, request: &Request) -> Value {
    if wants_metadata(&request.accept) {
        return metadata_of(object);
    }
    if kind.custom {
        return object.clone();
    }
    let fields = object.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, _)| *name != "kind" && *name != "apiVersion");
    Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn place(object: &Value) -> (&str, &str) {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

/// Where a list goes on: opaque to clients.
fn token(version: u64, namespace: &str, name: &str) -> String {
    format!("{version}.{namespace}.{name}")
}

fn parse_token(token: &str) -> Outcome<(u64, (String, String))> {
    let mut parts = token.splitn(3, '.');
    let version = parts.next().and_then(|it| it.parse().ok());
    match (version, parts.next(), parts.next()) {
        (Some(version), Some(namespace), Some(name)) => Ok((version, (namespace.to_owned(), name.to_owned()))),
        _ => Err(bad_request(
            "invalid continue token: continue key is not valid: invalid character 'i' looking for beginning of value",
        )),
    }
}
