//! POST and PUT, and what all writes have in common.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};

use super::body::{body_of, check_kind, check_name, has_no_rules, place, read, reworded, text};
use super::errors::{
    Fault, MODIFIED, Named, Outcome, already_exists, being_deleted, conflict, forbidden, invalid, not_found, plain,
};
use super::kinds::Kind;
use super::managed::{Managed, Writer};
use super::read::shaped;
use super::route::{Target, done};
use super::store::{By, Stored};
use super::{Answer, Request, Server, meta, pods, strategy, time, validate};

/// The parameters of a write.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub dry_run: bool,
    pub manager: String,
    /// Unknown fields are refused.
    pub strict: bool,
    pub now_text: String,
}

impl Options {
    pub fn new(request: &Request, now: Timestamp, kind: &str) -> Outcome<Self> {
        let parameter = |name: &str| request.query.get(name).map_or("", String::as_str);
        let mut faults = Vec::new();
        let dry_run = match parameter("dryRun") {
            "" => false,
            "All" => true,
            other => {
                let shown = Value::from(vec![other]);
                faults.push(Fault::not_supported("dryRun", &shown, &["All".to_owned()]));
                false
            }
        };
        let manager = parameter("fieldManager");
        if manager.len() > 128 {
            faults.push(Fault::too_long("fieldManager", 128));
        }
        let strict = match parameter("fieldValidation") {
            "Strict" => true,
            "" | "Warn" | "Ignore" => false,
            other => {
                let allowed = ["", "Ignore", "Strict", "Warn"].map(ToOwned::to_owned);
                faults.push(Fault::not_supported("fieldValidation", &other.into(), &allowed));
                false
            }
        };
        if !faults.is_empty() {
            return Err(invalid("meta.k8s.io", kind, "", &faults));
        }
        let manager = if manager.is_empty() {
            let agent = request.user_agent.split('/').next().unwrap_or_default();
            agent.chars().filter(|it| !it.is_control()).take(128).collect()
        } else {
            manager.to_owned()
        };
        Ok(Self { dry_run, manager, strict, now_text: time::seconds(now) })
    }

    /// The body, if it is to be read strictly.
    pub fn body<'a>(&self, request: &'a Request) -> Option<&'a [u8]> {
        self.strict.then_some(&request.body)
    }

    pub fn writer<'a>(&'a self, api_version: &'a str, subresource: &'a str) -> Writer<'a> {
        let manager = if self.manager.is_empty() { "unknown" } else { &self.manager };
        Writer { manager, api_version, subresource, now: &self.now_text }
    }
}

/// Takes the managed fields out of an object.
pub(super) fn take_managed(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// The owners that a write starts from: those that it brings itself, else those that are there.
pub(super) fn starting(brought: Option<&Value>, live: Option<&Stored>, subresource: &str) -> Managed {
    // an empty list, or one empty entry, means that nobody shall own anything
    let there = || live.map(|it| it.managed.clone()).unwrap_or_default();
    let Some(brought) = brought.filter(|_| subresource.is_empty()) else { return there() };
    if live.is_some_and(|it| it.value["metadata"].get("managedFields") == Some(brought)) {
        return there();
    }
    let list = brought.as_array().map_or(&[][..], Vec::as_slice);
    if list.is_empty() || list == [Value::Object(Map::new())] {
        return Managed::default();
    }
    Managed::from_json(brought).unwrap_or_else(there)
}

pub(super) fn put_managed(object: &mut Value, managed: &mut Managed) {
    if !managed.0.is_empty() {
        object["metadata"]["managedFields"] = managed.to_json();
    }
}

/// Who owns what of an object that is new; it carries that from now on.
fn owned_anew(kind: &Kind, object: &mut Value, brought: Option<&Value>, options: &Options) -> Managed {
    let mut managed = starting(brought, None, "");
    let version = kind.api_version();
    let writer = options.writer(&version, "");
    managed.update(None, &kind.empty, object, (&kind.schema, &kind.ignored[0]), writer);
    put_managed(object, &mut managed);
    managed
}

impl Server {
    pub(super) fn create(&mut self, target: &Target, request: &Request, now: Timestamp) -> Outcome<Answer> {
        let kind = Arc::clone(&self.kinds[target.kind]);
        let options = Options::new(request, now, "CreateOptions")?;
        let mut object = body_of(&kind, request)?;
        check_kind(&kind, &mut object, &request.body)?;
        let brought = take_managed(&mut object);
        let emptied = has_no_rules(&object);
        read(&kind, &mut object, options.body(request))?;
        place(&mut object, &target.namespace)?;
        if text(&object, "name").is_empty() && !text(&object, "generateName").is_empty() {
            self.given += 1;
            let name = format!("{}{}", text(&object, "generateName"), suffix(self.given));
            object["metadata"]["name"] = name.into();
        }
        wipe(&mut object);
        let managed = owned_anew(&kind, &mut object, brought.as_ref(), &options);
        let created = self.store_new(target, object, managed, &options, &request.user_agent);
        let created = created.map_err(|failure| reworded(failure, emptied))?;
        Ok(done(201, shaped(&created, request)))
    }

    /// Stores an object that is new: admission, what the server fills in, validation.
    pub(super) fn store_new(
        &mut self,
        target: &Target,
        mut object: Value,
        managed: Managed,
        options: &Options,
        who: &str,
    ) -> Outcome<Arc<Value>> {
        let kind = Arc::clone(&self.kinds[target.kind]);
        self.check_namespace(&kind, &target.namespace, text(&object, "name"))?;
        if kind.is("", "pods") {
            pods::admit(&mut object);
        }
        self.given += 1;
        object["metadata"]["creationTimestamp"] = options.now_text.as_str().into();
        object["metadata"]["uid"] = uid(self.given).into();
        strategy::for_create(&kind, &mut object, &options.now_text);
        let name = text(&object, "name").to_owned();
        let mut faults = meta::validate(&kind, &object);
        validate::create(&kind, &object, &mut faults);
        let said = object["kind"].as_str().unwrap_or(&kind.kind);
        if said != &*kind.kind {
            faults.insert(0, Fault::invalid("kind", &said.into(), &format!("must be {}", kind.kind)));
        }
        if !faults.is_empty() {
            let group = if kind.is("events.k8s.io", "events") { "" } else { &*kind.group };
            return Err(invalid(group, said, &name, &faults));
        }
        if !text(&object, "resourceVersion").is_empty() {
            return Err(plain("resourceVersion should not be set on objects to be created"));
        }
        self.allocate(&kind, &mut object);
        if let Some(there) = self.shelves[target.kind].get(&target.namespace, &name) {
            let ends = there.value["metadata"].get("deletionTimestamp").is_some();
            return Err(if ends { being_deleted(kind.named(), &name) } else { already_exists(kind.named(), &name) });
        }
        if options.dry_run {
            return Ok(Arc::new(object));
        }
        Ok(self.commit(target.kind, object, managed, By { who, subresource: "" }))
    }

    fn check_namespace(&self, kind: &Kind, namespace: &str, name: &str) -> Outcome<()> {
        if !kind.namespaced {
            return Ok(());
        }
        let spaces = Named { group: "", resource: "namespaces" };
        let Some(space) = self.shelves[0].get("", namespace) else { return Err(not_found(spaces, namespace)) };
        if space.value["metadata"].get("deletionTimestamp").is_some() {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            return Err(forbidden(kind.named(), name, &why));
        }
        Ok(())
    }

    pub(super) fn replace(&mut self, target: &Target, request: &Request, now: Timestamp) -> Outcome<Answer> {
        let kind = Arc::clone(&self.kinds[target.kind]);
        let options = Options::new(request, now, "UpdateOptions")?;
        let name = target.name.as_deref().unwrap_or_default();
        let mut object = body_of(&kind, request)?;
        check_kind(&kind, &mut object, &request.body)?;
        let brought = take_managed(&mut object);
        let emptied = has_no_rules(&object);
        read(&kind, &mut object, options.body(request))?;
        place(&mut object, &target.namespace)?;
        check_name(&object, name)?;
        let live = self.shelves[target.kind].get(&target.namespace, name).cloned();
        let Some(live) = live else {
            if !kind.create_on_update || !target.subresource.is_empty() {
                return Err(not_found(kind.named(), name));
            }
            if !text(&object, "uid").is_empty() {
                let why = precondition(&kind, target, name, text(&object, "uid"), "");
                return Err(conflict(kind.named(), name, &why));
            }
            wipe(&mut object);
            object["metadata"].as_object_mut().map(|it| it.remove("resourceVersion"));
            let managed = owned_anew(&kind, &mut object, brought.as_ref(), &options);
            let created = self.store_new(target, object, managed, &options, &request.user_agent)?;
            return Ok(done(201, shaped(&created, request)));
        };
        let (has, wanted) = (text(&live.value, "uid"), text(&object, "uid"));
        if !wanted.is_empty() && has != wanted {
            return Err(conflict(kind.named(), name, &precondition(&kind, target, name, wanted, has)));
        }
        let managed = self.own((&kind, target), (&object, brought.as_ref()), &live, &options);
        let stored = self.store_changed(target, &live, object, managed, &options, &request.user_agent);
        let stored = stored.map_err(|failure| reworded(failure, emptied))?;
        Ok(done(200, shaped(&stored, request)))
    }

    /// Works out who owns what after a write that is no apply.
    pub(super) fn own(
        &self,
        (kind, target): (&Kind, &Target),
        (object, brought): (&Value, Option<&Value>),
        live: &Stored,
        options: &Options,
    ) -> Managed {
        let mut managed = starting(brought, Some(live), &target.subresource);
        let ignored = &kind.ignored[usize::from(target.subresource == "status")];
        let version = kind.api_version();
        let writer = options.writer(&version, &target.subresource);
        managed.update(Some(&live.value), &kind.empty, object, (&kind.schema, ignored), writer);
        managed
    }

    /// Stores what became of an object: preconditions, what may not be changed, validation.
    pub(super) fn store_changed(
        &mut self,
        target: &Target,
        live: &Stored,
        mut object: Value,
        mut managed: Managed,
        options: &Options,
        who: &str,
    ) -> Outcome<Arc<Value>> {
        let kind = Arc::clone(&self.kinds[target.kind]);
        let name = target.name.as_deref().unwrap_or_default();
        let current = live.version.to_string();
        match text(&object, "resourceVersion") {
            "" | "0" if kind.unconditional => object["metadata"]["resourceVersion"] = current.clone().into(),
            "" | "0" => {
                let fault = Fault::plain(
                    "FieldValueInvalid",
                    "metadata.resourceVersion",
                    "Invalid value: 0: must be specified for an update".to_owned(),
                );
                return Err(invalid(&kind.group, &kind.plural, name, &[fault]));
            }
            has if has.parse::<u64>().is_err() => {
                return Err(plain(&format!("strconv.ParseUint: parsing {has:?}: invalid syntax")));
            }
            has if has != current => return Err(conflict(kind.named(), name, MODIFIED)),
            _ => {}
        }
        strategy::for_update(&kind, &target.subresource, &mut object, &live.value);
        let mut faults = meta::validate_update(&kind, &object, &live.value);
        validate::update(&kind, &target.subresource, (&object, &live.value), &mut faults);
        if !faults.is_empty() {
            let group = if kind.is("events.k8s.io", "events") { "" } else { &*kind.group };
            return Err(invalid(group, &kind.kind, name, &faults));
        }
        let by = By { who, subresource: &target.subresource };
        // a write that changes nothing but times is none
        if managed.same_fields(&live.managed) && same_but_managed(&object, &live.value) {
            if !ends(&object, &live.value) {
                return Ok(Arc::clone(&live.value));
            }
            managed = live.managed.clone();
        }
        take_managed(&mut object);
        put_managed(&mut object, &mut managed);
        if ends(&object, &live.value) {
            if !options.dry_run {
                self.erase(target.kind, &target.namespace, name, by);
            }
            return Ok(Arc::new(object));
        }
        if options.dry_run {
            return Ok(Arc::new(object));
        }
        Ok(self.commit(target.kind, object, managed, by))
    }
}

/// The last finalizer of an object that is being deleted is gone.
fn ends(object: &Value, live: &Value) -> bool {
    let (meta, old) = (&object["metadata"], &live["metadata"]);
    let none_left = meta["finalizers"].as_array().is_none_or(Vec::is_empty);
    let graceless = old["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0;
    none_left && old.get("deletionTimestamp").is_some() && graceless
}

fn same_but_managed(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    let empty = Map::new();
    let meta = |it: &'_ Map<String, Value>| it.get("metadata").and_then(Value::as_object).cloned();
    let plain = |it: &Map<String, Value>| {
        let mut it = meta(it).unwrap_or_else(|| empty.clone());
        it.remove("managedFields");
        it
    };
    a.len() == b.len()
        && a.iter().all(|(name, value)| name == "metadata" || b.get(name) == Some(value))
        && plain(a) == plain(b)
}

/// What a client may not set.
fn wipe(object: &mut Value) {
    let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for name in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        meta.remove(name);
    }
}

pub(super) fn precondition(kind: &Kind, target: &Target, name: &str, wanted: &str, has: &str) -> String {
    let place = if target.namespace.is_empty() { name.to_owned() } else { format!("{}/{name}", target.namespace) };
    format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{place}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {has}",
        kind.registry
    )
}

fn uid(count: u64) -> String {
    format!("00000000-0000-4000-8000-{count:012x}")
}

/// The end of a generated name.
fn suffix(count: u64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut left = count.wrapping_mul(7_919);
    let mut out = String::new();
    for _ in 0..5 {
        out.push(char::from(LETTERS[(left % LETTERS.len() as u64) as usize]));
        left /= LETTERS.len() as u64;
    }
    out
}
