//! The shapes of objects: of built-in kinds from a table, of custom ones from their CRD.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::check::Checks;

/// How one value is built.
#[derive(Debug)]
pub(super) struct Schema {
    /// What it is.
    pub shape: Shape,
    /// It is owned and merged as a whole.
    pub atomic: bool,
    /// What a CRD says of its values.
    pub checks: Option<Box<Checks>>,
}

#[derive(Debug)]
pub(super) enum Shape {
    /// Nothing is known: objects are merged by field, lists are whole.
    Any,
    Scalar(Scalar),
    /// Fields by name. `open`: others may be there too.
    Struct {
        fields: BTreeMap<Box<str>, Field>,
        open: bool,
        name: &'static str,
    },
    Map(Arc<Schema>),
    List {
        item: Arc<Schema>,
        keys: Keys,
        merge: Option<Box<str>>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    String,
    Bytes,
    Int32,
    Int64,
    Number,
    Bool,
    IntOrString,
    Quantity,
    Time,
    MicroTime,
}

/// How the items of a list are told apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Keys {
    Atomic,
    Set,
    Map(Vec<Box<str>>),
}

/// When a field of a built-in kind is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Never if it is empty.
    Filled,
    /// Whenever it is given.
    Given,
    /// Always, at least as `{}`.
    Struct,
    /// A struct, unless it is empty.
    FilledStruct,
    /// Always; what is left out is null.
    Null,
    /// Always.
    Always,
}

#[derive(Debug)]
pub(super) struct Field {
    pub schema: Arc<Schema>,
    pub keep: Keep,
}

impl Schema {
    fn new(shape: Shape) -> Self {
        Self { shape, atomic: false, checks: None }
    }

    /// Of which nothing is known.
    pub fn any() -> &'static Arc<Self> {
        static ANY: OnceLock<Arc<Schema>> = OnceLock::new();
        ANY.get_or_init(|| Arc::new(Self::new(Shape::Any)))
    }

    /// The schema of a field or key of an object.
    pub fn field(&self, name: &str) -> Option<&Arc<Self>> {
        match &self.shape {
            Shape::Struct { fields, open, .. } => match fields.get(name) {
                Some(field) => Some(&field.schema),
                None => open.then(Self::any),
            },
            Shape::Map(of) => Some(of),
            Shape::Any => Some(Self::any()),
            Shape::Scalar(_) | Shape::List { .. } => None,
        }
    }

    /// Whether `name` is a field rather than a key of a map.
    pub fn names(&self, name: &str) -> bool {
        matches!(&self.shape, Shape::Struct { fields, .. } if fields.contains_key(name))
    }

    /// The schema of a list's items.
    pub fn item(&self) -> &Arc<Self> {
        match &self.shape {
            Shape::List { item, .. } => item,
            _ => Self::any(),
        }
    }

    /// Of the metadata of any object.
    pub fn metadata() -> &'static Arc<Self> {
        static METADATA: OnceLock<Arc<Schema>> = OnceLock::new();
        METADATA.get_or_init(|| builtin("meta.v1.ObjectMeta"))
    }
}

const TABLE: &str = include_str!("builtin.txt");

/// The type of that name, such as `apps.v1.Deployment`.
pub(super) fn builtin(name: &str) -> Arc<Schema> {
    static TYPES: OnceLock<HashMap<&'static str, Arc<Schema>>> = OnceLock::new();
    let types = TYPES.get_or_init(|| {
        let lines = TABLE.lines().filter_map(|line| line.split_once(' '));
        let lines: HashMap<_, _> =
            lines.map(|(name, rest)| (name.trim_end_matches('!'), (name.ends_with('!'), rest))).collect();
        let mut types = HashMap::new();
        for name in lines.keys() {
            build(name, &lines, &mut types);
        }
        types
    });
    types.get(name).map_or_else(|| panic!("no type {name}"), Arc::clone)
}

type Lines = HashMap<&'static str, (bool, &'static str)>;

fn build(name: &'static str, lines: &Lines, types: &mut HashMap<&'static str, Arc<Schema>>) -> Arc<Schema> {
    if let Some(done) = types.get(name) {
        return Arc::clone(done);
    }
    let (atomic, rest) = lines[name];
    let mut fields = BTreeMap::new();
    for (name, text) in rest.split(' ').filter_map(|field| field.split_once(':')) {
        let (keep, text) = text.split_at(1);
        let keep = match keep {
            "o" | "z" => Keep::Filled,
            "p" => Keep::Given,
            "s" => Keep::Struct,
            "w" => Keep::FilledStruct,
            "n" => Keep::Null,
            _ => Keep::Always,
        };
        let text = text.trim_start_matches('^');
        let keep = if keep == Keep::Filled && text.starts_with('@') { Keep::FilledStruct } else { keep };
        fields.insert(name.into(), Field { schema: read(text, lines, types), keep });
    }
    let short = name.rsplit('.').next().unwrap_or_default();
    let schema = Arc::new(Schema { atomic, ..Schema::new(Shape::Struct { fields, open: false, name: short }) });
    types.insert(name, Arc::clone(&schema));
    schema
}

/// One type of the table: `s`, `@core.v1.Pod`, `[key,key]…`, `{}…`.
fn read(text: &'static str, lines: &Lines, types: &mut HashMap<&'static str, Arc<Schema>>) -> Arc<Schema> {
    if let Some(name) = text.strip_prefix('@') {
        return build(name, lines, types);
    }
    if let Some(of) = text.strip_prefix("{}") {
        return Arc::new(Schema::new(Shape::Map(read(of, lines, types))));
    }
    if let Some(of) = text.strip_prefix("{!}") {
        return Arc::new(Schema { atomic: true, ..Schema::new(Shape::Map(read(of, lines, types))) });
    }
    let scalar = match text {
        "s" => Scalar::String,
        "B" => Scalar::Bytes,
        "i" => Scalar::Int32,
        "l" => Scalar::Int64,
        "n" => Scalar::Number,
        "b" => Scalar::Bool,
        "x" => Scalar::IntOrString,
        "q" => Scalar::Quantity,
        "t" => Scalar::Time,
        "T" => Scalar::MicroTime,
        "o" => return Arc::clone(Schema::any()),
        list => {
            let (merge, list) = match list.strip_prefix('~').and_then(|rest| rest.split_once('[')) {
                Some((key, rest)) => (Some(key.into()), rest),
                None => (None, list.trim_start_matches('[')),
            };
            let (keys, item) = list.split_once(']').unwrap_or_default();
            let keys = match keys {
                "" => Keys::Atomic,
                "=" => Keys::Set,
                keys => Keys::Map(keys.split(',').map(Into::into).collect()),
            };
            let atomic = keys == Keys::Atomic;
            let shape = Shape::List { item: read(item, lines, types), keys, merge };
            return Arc::new(Schema { atomic, ..Schema::new(shape) });
        }
    };
    Arc::new(Schema::new(Shape::Scalar(scalar)))
}

/// From the `openAPIV3Schema` of a CRD. `root`: it is the whole object.
pub(super) fn custom(json: &Value, root: bool) -> Schema {
    let flag = |name: &str| json.get(name).and_then(Value::as_bool).unwrap_or_default();
    let text = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut atomic = false;
    let open = flag("x-kubernetes-preserve-unknown-fields");
    let shape = match text("type") {
        "object" => {
            atomic = text("x-kubernetes-map-type") == "atomic";
            let of = json.get("additionalProperties").filter(|it| it.is_object());
            let properties = json.get("properties").and_then(Value::as_object);
            match (of, properties) {
                (Some(of), _) => Shape::Map(Arc::new(custom(of, false))),
                (None, properties) => {
                    let known = properties.into_iter().flatten();
                    let mut fields: BTreeMap<Box<str>, Field> =
                        known.map(|(name, one)| (name.as_str().into(), plain(custom(one, false)))).collect();
                    if root || flag("x-kubernetes-embedded-resource") {
                        for name in ["apiVersion", "kind"] {
                            fields.insert(name.into(), plain(Schema::new(Shape::Scalar(Scalar::String))));
                        }
                        let metadata = Field { schema: Arc::clone(Schema::metadata()), keep: Keep::Given };
                        fields.insert("metadata".into(), metadata);
                    }
                    let free = json.get("additionalProperties").and_then(Value::as_bool).unwrap_or_default();
                    Shape::Struct { fields, open: open || free, name: "" }
                }
            }
        }
        "array" => {
            let item = Arc::new(json.get("items").map_or_else(|| Schema::new(Shape::Any), |it| custom(it, false)));
            let named = json.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let named = named.into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect();
            let keys = match text("x-kubernetes-list-type") {
                "map" => Keys::Map(named),
                "set" => Keys::Set,
                _ => Keys::Atomic,
            };
            atomic = keys == Keys::Atomic;
            Shape::List { item, keys, merge: None }
        }
        "integer" => Shape::Scalar(if text("format") == "int32" { Scalar::Int32 } else { Scalar::Int64 }),
        "number" => Shape::Scalar(Scalar::Number),
        "boolean" => Shape::Scalar(Scalar::Bool),
        "string" => Shape::Scalar(Scalar::String),
        _ if flag("x-kubernetes-int-or-string") => Shape::Scalar(Scalar::IntOrString),
        _ => Shape::Any,
    };
    Schema { shape, atomic, checks: Some(Box::new(Checks::new(json, root))) }
}

fn plain(schema: Schema) -> Field {
    Field { schema: Arc::new(schema), keep: Keep::Given }
}
