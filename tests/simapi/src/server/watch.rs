//! The events of watches.

use std::sync::Arc;

use serde_json::{Value, json};

use super::errors::expired;
use super::read::metadata_of;
use super::selector::Selection;
use super::store::Record;
use super::{Event, Server, Watch};

impl Server {
    /// What happened after a version, as `watch` sees it: what comes into its selection is added, what leaves it is
    /// deleted. Too old a version gives the `Status` of a 410.
    pub fn events(&self, watch: &Watch, after: u64) -> Result<Vec<Event>, Value> {
        let Some(kind) = self.kind(&watch.resource) else { return Ok(Vec::new()) };
        let shelf = &self.shelves[kind];
        if watch.initial && after == 0 {
            return Ok(self.initial_events(kind, watch));
        }
        if after < shelf.compacted {
            return Err(expired(&format!("too old resource version: {after} ({})", shelf.compacted)).body);
        }
        let start = shelf.log.partition_point(|record| record.version <= after);
        let fresh = &shelf.log[start..];
        if fresh.is_empty() {
            return Ok(Vec::new());
        }
        let selection = Selection::new(&watch.labels, &watch.fields).map_err(|failure| failure.body)?;
        let here = fresh.iter().filter(|it| watch.namespace.as_deref().is_none_or(|wanted| wanted == &*it.namespace));
        Ok(here.filter_map(|record| event(record, watch, &selection)).collect())
    }

    /// What a watch begins with that asked for no version: everything that is there.
    fn initial_events(&self, kind: usize, watch: &Watch) -> Vec<Event> {
        let Ok(selection) = Selection::new(&watch.labels, &watch.fields) else { return Vec::new() };
        let all = self.shelves[kind].list(watch.namespace.as_deref(), None);
        let fitting = all.filter(|stored| selection.fits(&stored.value));
        let mut out: Vec<Event> =
            fitting.map(|stored| Event { version: self.version, body: body("ADDED", &stored.value, watch) }).collect();
        if watch.initial_end {
            let mut end = self.bookmark_of(kind, self.version);
            end["object"]["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
            out.push(Event { version: self.version, body: Arc::new(end) });
        }
        out
    }

    /// Tells a watch how far it is.
    pub fn bookmark(&self, watch: &Watch) -> Event {
        let body = self.kind(&watch.resource).map(|kind| self.bookmark_of(kind, self.version)).unwrap_or_default();
        Event { version: self.version, body: Arc::new(body) }
    }

    fn bookmark_of(&self, kind: usize, version: u64) -> Value {
        let kind = &self.kinds[kind];
        let mut object = json!({
            "kind": kind.kind, "apiVersion": kind.api_version(),
            "metadata": { "resourceVersion": version.to_string() },
        });
        // an empty object of a built-in kind has all that is always written
        if !kind.custom {
            let _ = super::conform::builtin(&mut object, &kind.schema, "", &mut Vec::new());
        }
        json!({ "type": "BOOKMARK", "object": object })
    }
}

fn event(record: &Record, watch: &Watch, selection: &Selection) -> Option<Event> {
    let fits = |object: &Option<Arc<Value>>| object.as_ref().is_some_and(|it| selection.fits(it));
    let (before, now) = (fits(&record.old), fits(&record.new));
    let kind = match (before, now) {
        (false, true) => "ADDED",
        (true, true) => "MODIFIED",
        (true, false) => "DELETED",
        (false, false) => return None,
    };
    let make = || match (&record.new, &record.old) {
        (Some(new), _) if now => body(kind, new, watch),
        // as it was last, with the version of this change
        (_, Some(old)) => {
            let mut last = Value::clone(old);
            last["metadata"]["resourceVersion"] = record.version.to_string().into();
            body(kind, &last, watch)
        }
        _ => Arc::default(),
    };
    let plain = selection.is_all() && !watch.metadata_only;
    let body = if plain { Arc::clone(record.event.get_or_init(make)) } else { make() };
    Some(Event { version: record.version, body })
}

fn body(kind: &str, object: &Value, watch: &Watch) -> Arc<Value> {
    let object = if watch.metadata_only { metadata_of(object) } else { object.clone() };
    Arc::new(json!({ "type": kind, "object": object }))
}
