//! The CEL rules of a CRD.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube::core::cel::KubeCelExt as _;
use kube::core::cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};
use kube::core::cel::cel::extractors::This;
use kube::core::cel::cel::objects::{Key, Map, Value as Cel};
use kube::core::cel::cel::{Context, ExecutionError, Program};
use regex::Regex;
use serde_json::Value;

use super::check::counterpart;
use super::conform::join;
use super::errors::Fault;
use super::schema::{Scalar, Schema, Shape};

/// One rule, compiled.
#[derive(Debug)]
pub(super) struct Rule {
    program: Result<Program, String>,
    text: String,
    message: Option<String>,
    expression: Option<Program>,
    reason: String,
    field: String,
    /// It looks at the old value.
    transition: bool,
    optional_old: bool,
    /// The type in messages.
    of: String,
    /// What it reads of `self` and of `oldSelf`.
    reads: [Need; 2],
}

/// The part of a value that is read.
#[derive(Debug, Clone)]
enum Need {
    All,
    Fields(BTreeMap<String, Need>),
}

impl Need {
    fn nothing() -> Self {
        Self::Fields(BTreeMap::new())
    }

    /// `whole`: the value at the path, not only whether it is there.
    fn add(&mut self, path: &[&str], whole: bool) {
        match (self, path) {
            (Self::All, _) => {}
            (need, []) if whole => *need = Self::All,
            (_, []) => {}
            (Self::Fields(fields), [first, rest @ ..]) => {
                fields.entry((*first).to_owned()).or_insert_with(Self::nothing).add(rest, whole);
            }
        }
    }
}

impl Rule {
    pub fn new(json: &Value, schema: &Value, root: bool) -> Self {
        let text = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let program = Program::compile(&text("rule")).map_err(|error| error.to_string());
        let expression =
            Program::compile(&text("messageExpression")).ok().filter(|_| !text("messageExpression").is_empty());
        let mut reads = [Need::nothing(), Need::nothing()];
        for program in program.iter().chain(&expression) {
            needs(program.expression(), &mut reads);
        }
        let transition = program.as_ref().is_ok_and(|it| it.references().has_variable("oldSelf"));
        let of = schema.get("type").and_then(Value::as_str).unwrap_or(if root { "object" } else { "" });
        Self {
            program,
            text: text("rule"),
            message: Some(text("message")).filter(|it| !it.is_empty()),
            expression,
            reason: text("reason"),
            field: text("fieldPath").trim_start_matches('.').to_owned(),
            transition,
            optional_old: json.get("optionalOldSelf") == Some(&true.into()),
            of: of.to_owned(),
            reads,
        }
    }

    fn run(&self, value: &Value, old: Option<&Value>, schema: &Schema, path: &str) -> Option<Fault> {
        let place = if path.is_empty() { "<nil>" } else { path };
        let of: Value = self.of.as_str().into();
        let said = self.message.as_deref().unwrap_or(&self.text).trim();
        let program = match &self.program {
            Ok(program) => program,
            Err(error) => return Some(Fault::invalid(place, &of, &format!("rule compile error: {error}"))),
        };
        if self.transition && old.is_none() && !self.optional_old {
            return None;
        }
        FUNCTIONS.with(|root| {
            let mut scope = root.new_inner_scope();
            scope.add_variable_from_value("self", convert(value, schema, &self.reads[0]));
            if let Some(old) = old {
                scope.add_variable_from_value("oldSelf", convert(old, schema, &self.reads[1]));
            }
            match program.execute(&scope) {
                Ok(Cel::Bool(true)) => None,
                Ok(_) => {
                    let place = if self.field.is_empty() { place.to_owned() } else { join(path, &self.field) };
                    let computed = self.expression.as_ref().and_then(|it| match it.execute(&scope) {
                        Ok(Cel::String(text)) => Some(text.trim().to_owned()),
                        _ => None,
                    });
                    let message = computed.unwrap_or_else(|| match &self.message {
                        Some(message) => message.trim().to_owned(),
                        None => format!("failed rule: {said}"),
                    });
                    Some(match self.reason.as_str() {
                        "FieldValueForbidden" => Fault::forbidden(place, &message),
                        "FieldValueRequired" => Fault::required(place, &message),
                        "FieldValueDuplicate" => Fault::duplicate(place, &of),
                        _ => Fault::invalid(place, &of, &message),
                    })
                }
                Err(error) => {
                    let error = match &error {
                        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
                        other => other.to_string(),
                    };
                    Some(Fault::invalid(place, &of, &format!("{error} evaluating rule: {said}")))
                }
            }
        })
    }
}

/// Runs the rules of `value` and of all below it. What is as it was in `old` is not looked at, but by transition rules.
pub(super) fn check(value: &Value, old: Option<&Value>, schema: &Schema, path: &str, faults: &mut Vec<Fault>) {
    let Some(checks) = &schema.checks else { return };
    if !checks.rules_below || value.is_null() {
        return;
    }
    let same = old == Some(value);
    for rule in checks.rules.iter().filter(|rule| rule.transition || !same) {
        faults.extend(rule.run(value, old, schema, path));
    }
    match value {
        Value::Array(list) => {
            for (at, item) in list.iter().enumerate() {
                let before = old.and_then(|old| counterpart(item, old, schema));
                if before.is_none() && same {
                    continue;
                }
                check(item, before, schema.item(), &format!("{path}[{at}]"), faults);
            }
        }
        Value::Object(map) => {
            for (name, one) in map {
                if let Some(schema) =
                    schema.field(name).filter(|it| it.checks.as_ref().is_some_and(|it| it.rules_below))
                {
                    check(one, old.and_then(|old| old.get(name)), schema, &join(path, name), faults);
                }
            }
        }
        _ => {}
    }
}

thread_local! {
    static FUNCTIONS: Context<'static> = {
        let mut context = Context::default().with_all();
        context.add_function("matches", matches);
        context
    };
    static PATTERNS: RefCell<HashMap<String, Option<Regex>>> = RefCell::default();
}

/// As the evaluator's own, but each pattern is compiled once.
fn matches(This(text): This<Arc<String>>, pattern: Arc<String>) -> Result<bool, ExecutionError> {
    PATTERNS.with_borrow_mut(|patterns| {
        if !patterns.contains_key(&*pattern) {
            patterns.insert(pattern.to_string(), Regex::new(&pattern).ok());
        }
        match patterns.get(&*pattern) {
            Some(Some(regex)) => Ok(regex.is_match(&text)),
            _ => Err(ExecutionError::function_error("matches", format!("{pattern} is not a valid regex"))),
        }
    })
}

fn convert(value: &Value, schema: &Schema, need: &Need) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(it) => Cel::Bool(*it),
        Value::Number(it) => match it.as_i64() {
            Some(int) if !matches!(schema.shape, Shape::Scalar(Scalar::Number)) => Cel::Int(int),
            _ => Cel::Float(it.as_f64().unwrap_or_default()),
        },
        Value::String(it) => Cel::String(Arc::new(it.clone())),
        Value::Array(list) => match need {
            Need::All => Cel::List(Arc::new(list.iter().map(|it| convert(it, schema.item(), need)).collect())),
            Need::Fields(_) => Cel::List(Arc::default()),
        },
        Value::Object(map) => {
            let entry = |name: &str, one: &Value, need: &Need| {
                let schema = schema.field(name).unwrap_or_else(|| Schema::any());
                (Key::String(Arc::new(name.to_owned())), convert(one, schema, need))
            };
            let map: HashMap<Key, Cel> = match need {
                Need::All => map.iter().map(|(name, one)| entry(name, one, need)).collect(),
                Need::Fields(fields) => {
                    fields.iter().filter_map(|(name, need)| map.get(name).map(|one| entry(name, one, need))).collect()
                }
            };
            Cel::Map(Map { map: Arc::new(map) })
        }
    }
}

/// What an expression reads of `self` and `oldSelf`.
fn needs(of: &IdedExpr, reads: &mut [Need; 2]) {
    if let Some((variable, path, test)) = chain(of) {
        let at = match variable {
            "self" => 0,
            "oldSelf" => 1,
            _ => return,
        };
        reads[at].add(&path, !test);
        return;
    }
    match &of.expr {
        Expr::Call(call) => call.target.iter().map(|it| &**it).chain(&call.args).for_each(|it| needs(it, reads)),
        Expr::Comprehension(it) => {
            for one in [&it.iter_range, &it.accu_init, &it.loop_cond, &it.loop_step, &it.result] {
                needs(one, reads);
            }
        }
        Expr::List(list) => list.elements.iter().for_each(|it| needs(it, reads)),
        Expr::Map(map) => map.entries.iter().for_each(|it| entry_needs(&it.expr, reads)),
        Expr::Struct(it) => it.entries.iter().for_each(|it| entry_needs(&it.expr, reads)),
        Expr::Select(select) => needs(&select.operand, reads),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

fn entry_needs(entry: &EntryExpr, reads: &mut [Need; 2]) {
    match entry {
        EntryExpr::StructField(field) => needs(&field.value, reads),
        EntryExpr::MapEntry(entry) => {
            needs(&entry.key, reads);
            needs(&entry.value, reads);
        }
    }
}

/// `self.a.b` as its variable and path, and whether it is only asked if it is there.
fn chain(of: &IdedExpr) -> Option<(&str, Vec<&str>, bool)> {
    match &of.expr {
        Expr::Ident(name) => Some((name, Vec::new(), false)),
        Expr::Select(select) => {
            let (variable, mut path, _) = chain(&select.operand)?;
            path.push(&select.field);
            Some((variable, path, select.test))
        }
        _ => None,
    }
}
