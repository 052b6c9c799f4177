//! DELETE.

use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::body::{go_json_error, text};
use super::errors::{Fault, Named, Outcome, bad_request, conflict, invalid, not_found, plain};
use super::read::{item, shaped};
use super::route::{Target, done};
use super::selector::Selection;
use super::store::By;
use super::{Answer, Request, Server, time};

/// What a DELETE says.
#[derive(Clone, Debug, Default)]
struct Wish {
    dry_run: bool,
    grace: Option<i64>,
    policy: String,
    orphan: Option<bool>,
    uid: Option<String>,
    version: Option<String>,
}

impl Wish {
    fn new(request: &Request) -> Outcome<Self> {
        let mut json = json!({});
        if request.body.is_empty() {
            for (name, value) in &request.query {
                match name.as_str() {
                    "propagationPolicy" => json[name] = value.as_str().into(),
                    "dryRun" => json[name] = json!([value]),
                    "gracePeriodSeconds" => json[name] = value.parse::<i64>().unwrap_or_default().into(),
                    "orphanDependents" => json[name] = (value == "true").into(),
                    _ => {}
                }
            }
        } else {
            json = serde_json::from_slice(&request.body).map_err(|_| {
                plain(&format!("couldn't get version/kind; json parse error: {}", go_json_error(&request.body)))
            })?;
            if let Some(kind) = json.get("kind").and_then(Value::as_str).filter(|kind| *kind != "DeleteOptions") {
                return Err(bad_request(&format!(
                    "no kind {kind:?} is registered for the internal version of group \"meta.k8s.io\" in scheme"
                )));
            }
        }
        let string = |place: &str| json.pointer(place).and_then(Value::as_str).map(ToOwned::to_owned);
        let wish = Self {
            dry_run: json["dryRun"].as_array().is_some_and(|it| it.iter().any(|it| it == "All"))
                || request.query.get("dryRun").is_some_and(|it| it == "All"),
            grace: json["gracePeriodSeconds"].as_i64(),
            policy: string("/propagationPolicy").unwrap_or_default(),
            orphan: json["orphanDependents"].as_bool(),
            uid: string("/preconditions/uid"),
            version: string("/preconditions/resourceVersion"),
        };
        let mut faults = Vec::new();
        if wish.orphan.is_some() && !wish.policy.is_empty() {
            let both = "orphanDependents and deletionPropagation cannot be both set";
            faults.push(Fault::invalid("propagationPolicy", &wish.policy.as_str().into(), both));
        }
        let policies = ["Foreground", "Background", "Orphan"];
        if !wish.policy.is_empty() && !policies.contains(&wish.policy.as_str()) {
            let allowed = ["Foreground", "Background", "Orphan", "nil"].map(ToOwned::to_owned);
            faults.push(Fault::not_supported("propagationPolicy", &wish.policy.as_str().into(), &allowed));
        }
        if faults.is_empty() { Ok(wish) } else { Err(invalid("meta.k8s.io", "DeleteOptions", "", &faults)) }
    }
}

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

impl Server {
    pub(super) fn delete(&mut self, target: &Target, request: &Request, now: Timestamp) -> Outcome<Answer> {
        let wish = Wish::new(request)?;
        let name = target.name.as_deref().unwrap_or_default();
        let (object, gone) = self.end(target, name, &wish, now, &request.user_agent)?;
        let kind = &self.kinds[target.kind];
        if gone && !kind.returns_deleted {
            let mut details = json!({ "name": name, "kind": kind.plural, "uid": object["metadata"]["uid"] });
            if !kind.group.is_empty() {
                details["group"] = (*kind.group).into();
            }
            return Ok(done(
                200,
                json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                }),
            ));
        }
        let accepted = !gone && wish.orphan == Some(false);
        Ok(done(if accepted { 202 } else { 200 }, shaped(&object, request)))
    }

    /// Deletes one object, or begins to. Gives what it is then, and whether it is gone.
    fn end(
        &mut self,
        target: &Target,
        name: &str,
        wish: &Wish,
        now: Timestamp,
        who: &str,
    ) -> Outcome<(Arc<Value>, bool)> {
        let kind = Arc::clone(&self.kinds[target.kind]);
        let live = self.shelves[target.kind].get(&target.namespace, name).cloned();
        let live = live.ok_or_else(|| not_found(kind.named(), name))?;
        check_preconditions(kind.by_kind(), name, wish, &live.value)?;
        let mut next = Value::clone(&live.value);
        let meta = &mut next["metadata"];
        let old: Vec<String> = strings(&meta["finalizers"]);
        let by = By { who, subresource: "" };
        let mut grace = 0;
        let mut graceful = false;
        if kind.is("", "pods") {
            if let Some(since) = meta.get("deletionTimestamp").and_then(Value::as_str).and_then(time::parse) {
                let before = meta["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
                match wish.grace {
                    _ if before == 0 => {}
                    Some(wanted) if wanted.max(0) < before => {
                        let at = since - SignedDuration::from_secs(before) + SignedDuration::from_secs(wanted);
                        grace = if at < now && wanted != 0 { 1 } else { wanted };
                        meta["deletionTimestamp"] = time::seconds(at.max(now)).into();
                        meta["deletionGracePeriodSeconds"] = grace.into();
                        graceful = true;
                    }
                    _ => return Ok((live.value, false)),
                }
            } else {
                grace = super::pods::grace(&live.value, wish.grace);
                meta["deletionTimestamp"] = time::seconds(now + SignedDuration::from_secs(grace)).into();
                meta["deletionGracePeriodSeconds"] = grace.into();
                bump(meta);
                graceful = true;
            }
        }
        if kind.is("", "namespaces") {
            return self.end_namespace(target, name, live.value, wish, now, by);
        }
        // the last word that was said counts: the options, else a finalizer that is there
        let orphan = match (wish.orphan, wish.policy.as_str()) {
            (Some(orphan), _) => orphan,
            // the Pods of a Job stay unless it is said otherwise
            (None, "") if kind.is("batch", "jobs") => !old.iter().any(|it| it == FOREGROUND),
            (None, "") => old.iter().any(|it| it == ORPHAN),
            (None, policy) => policy == "Orphan",
        };
        let foreground = match (wish.orphan, wish.policy.as_str()) {
            (Some(_), _) => false,
            (None, "") => old.iter().any(|it| it == FOREGROUND) && !orphan,
            (None, policy) => policy == "Foreground",
        };
        let mut finalizers: Vec<String> = old.iter().filter(|it| *it != ORPHAN && *it != FOREGROUND).cloned().collect();
        if orphan {
            finalizers.push(ORPHAN.into());
        }
        if foreground {
            finalizers.push(FOREGROUND.into());
        }
        if finalizers.is_empty() {
            meta.as_object_mut().map(|it| it.remove("finalizers"));
        } else {
            meta["finalizers"] = finalizers.clone().into();
        }
        if finalizers.is_empty() && (!graceful || grace == 0) {
            if wish.dry_run {
                return Ok((live.value, true));
            }
            let last = self.erase(target.kind, &target.namespace, name, by).unwrap_or_default();
            if !graceful {
                return Ok((last, true));
            }
            // the answer shows that the grace has run out
            let mut last = Value::clone(&last);
            last["metadata"]["deletionTimestamp"] = next["metadata"]["deletionTimestamp"].clone();
            last["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            last["metadata"]["generation"] = next["metadata"]["generation"].clone();
            return Ok((Arc::new(last), true));
        }
        if !graceful && !finalizers.is_empty() {
            mark(meta, now);
        }
        if next == *live.value || wish.dry_run {
            return Ok((if wish.dry_run { Arc::new(next) } else { live.value }, false));
        }
        Ok((self.commit(target.kind, next, live.managed, by), false))
    }

    fn end_namespace(
        &mut self,
        target: &Target,
        name: &str,
        live: Arc<Value>,
        wish: &Wish,
        now: Timestamp,
        by: By<'_>,
    ) -> Outcome<(Arc<Value>, bool)> {
        let _ = name;
        if live["metadata"].get("deletionTimestamp").is_some() {
            return Ok((live, false));
        }
        let mut next = Value::clone(&live);
        next["metadata"]["deletionTimestamp"] = time::seconds(now).into();
        next["status"]["phase"] = "Terminating".into();
        if wish.dry_run {
            return Ok((Arc::new(next), false));
        }
        let managed = self.shelves[target.kind].get("", name).map(|it| it.managed.clone()).unwrap_or_default();
        Ok((self.commit(target.kind, next, managed, by), false))
    }

    pub(super) fn delete_all(&mut self, target: &Target, request: &Request, now: Timestamp) -> Outcome<Answer> {
        let wish = Wish::new(request)?;
        let parameter = |name: &str| request.query.get(name).map_or("", String::as_str);
        let selection = Selection::new(parameter("labelSelector"), parameter("fieldSelector"))?;
        let namespace = Some(target.namespace.as_str()).filter(|it| !it.is_empty());
        let all = self.shelves[target.kind].list(namespace, None);
        let chosen: Vec<Arc<Value>> = all.map(|it| Arc::clone(&it.value)).filter(|it| selection.fits(it)).collect();
        let version = self.version;
        for object in &chosen {
            self.end(target, text(object, "name"), &wish, now, &request.user_agent)?;
        }
        let kind = &self.kinds[target.kind];
        let items: Vec<Value> = chosen.iter().map(|it| item(it, kind, request)).collect();
        let mut meta = json!({ "resourceVersion": version.to_string() });
        if kind.custom {
            meta["continue"] = "".into();
        }
        Ok(done(
            200,
            json!({
                "kind": format!("{}List", kind.kind), "apiVersion": kind.api_version(),
                "metadata": meta, "items": items,
            }),
        ))
    }
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}

fn bump(meta: &mut Value) {
    if let Some(generation) = meta["generation"].as_i64().filter(|it| *it > 0) {
        meta["generation"] = (generation + 1).into();
    }
}

/// Finalizers are waited for from now on.
pub(super) fn mark(meta: &mut Value, now: Timestamp) {
    if meta.get("deletionTimestamp").is_none() {
        bump(meta);
        meta["deletionTimestamp"] = time::seconds(now).into();
    }
    meta["deletionGracePeriodSeconds"] = 0.into();
}

fn check_preconditions(of: Named<'_>, name: &str, wish: &Wish, live: &Value) -> Outcome<()> {
    let (uid, version) = (text(live, "uid"), text(live, "resourceVersion"));
    if let Some(wanted) = wish.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return Err(conflict(of, name, &why));
    }
    if let Some(wanted) = wish.version.as_deref().filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(conflict(of, name, &why));
    }
    Ok(())
}
